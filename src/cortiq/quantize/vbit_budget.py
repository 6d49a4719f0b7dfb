"""How many bits each row of the vbit tensors gets: loud rows more, quiet ones fewer (SPEC 3.2).

    amplitude   a = log2 of the largest magnitude of a row
    tensor      bits = nearest width to mean_bits + (a - mean a)
    family      the experts' matrices of one layer and one projection share a budget. With m_e the mean amplitude of
                expert e, and m the mean of all m_e, an expert is shifted by s_e = m_e - m, plus
                log2(count_e + 1) - mean log2(count + 1) where the router's selections of that layer were counted.
                Shifts are limited to 2.5 bits and centred, bits = nearest width to mean_bits + (a - m_e) + s_e + d,
                with the one d from -3 to 3 that brings the mean over all rows of the family to mean_bits

Widths are 3, 4, 5, 6 and 8; the smaller one of two equally near is taken. Sums over a family do not depend on the order
of their terms.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cortiq.errors import UsageError
from cortiq.layouts.base import Bytes, Floats
from cortiq.layouts.vbit import MEAN_BITS, WIDTHS, nearest_widths, widths_of_rows

RouteCounts = Mapping[int, tuple[int, ...]]
"""By layer, how often the router selected each expert."""

_EXPERT = re.compile(r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(gate|up|down)_proj\.weight")
_MOST_SHIFT = 2.5
_MOST_OFFSET = 3.0
_BISECTIONS = 40


@dataclass(frozen=True, slots=True)
class VbitBudget:
    """``mean_bits`` a weight, scales not counted, cut to thousandths; ``counts`` of the router's selections, if known.

    Raises UsageError.mean_bits outside 3 to 8.
    """

    mean_bits: float = MEAN_BITS
    counts: RouteCounts | None = None

    def __post_init__(self) -> None:
        if not min(WIDTHS) <= self.mean_bits <= max(WIDTHS):
            expected = f"{min(WIDTHS)} to {max(WIDTHS)}"
            raise UsageError("mean bits of vbit", code="mean_bits", expected=expected, found=self.mean_bits)

    @property
    def target(self) -> float:
        """``mean_bits`` in thousandths."""
        return int(self.mean_bits * 1000) / 1000

    def allocate(self, amplitudes: Mapping[str, Floats]) -> dict[str, Bytes]:
        """Widths u8 [rows] of each tensor, from its amplitudes f32 [rows] and those of its family.

        Raises UsageError.route_stats when an expert of a counted layer was not counted.
        """
        families: dict[tuple[int, str], dict[int, str]] = {}
        widths = {}
        for name, levels in amplitudes.items():
            if (found := _EXPERT.fullmatch(name)) is not None:
                families.setdefault((int(found[1]), found[3]), {})[int(found[2])] = name
            else:
                widths[name] = widths_of_rows(levels, self.target)
        for (layer, _), experts in families.items():
            field = self._field(layer, experts)
            shared = _share({name: amplitudes[name] for name in experts.values()}, field, self.target)
            widths.update(shared)
        return widths

    def _field(self, layer: int, experts: Mapping[int, str]) -> dict[str, float]:
        """What the router's selections add to the shift of each expert."""
        if self.counts is None or layer not in self.counts:
            return dict.fromkeys(experts.values(), 0.0)
        counts = self.counts[layer]
        if max(experts) >= len(counts):
            name = experts[max(experts)]
            raise UsageError(
                f"the route statistics of layer {layer} do not cover all experts",
                code="route_stats",
                tensor=name,
                expected=max(experts) + 1,
                found=len(counts),
            )
        logs = [math.log2(count + 1) for count in counts]
        mean = math.fsum(logs) / len(logs)
        return {name: logs[expert] - mean for expert, name in experts.items()}


def _share(amplitudes: Mapping[str, Floats], field: Mapping[str, float], mean_bits: float) -> dict[str, Bytes]:
    """Widths of one family."""
    means = {name: math.fsum(levels) / len(levels) for name, levels in amplitudes.items()}
    mean = math.fsum(means.values()) / len(means)
    shifts = {name: min(max(means[name] - mean + field[name], -_MOST_SHIFT), _MOST_SHIFT) for name in amplitudes}
    centre = math.fsum(shifts.values()) / len(shifts)
    wanted = {
        name: mean_bits + (levels.astype(np.float64) - means[name]) + (shifts[name] - centre)
        for name, levels in amplitudes.items()
    }
    every = np.concatenate(list(wanted.values()))

    def surplus(offset: float) -> float:
        return int(nearest_widths(every + offset).sum(dtype=np.int64)) - mean_bits * len(every)

    low, high = -_MOST_OFFSET, _MOST_OFFSET
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if surplus(middle) < 0 else (low, middle)
    offset = min((low, high), key=lambda end: abs(surplus(end)))
    return {name: nearest_widths(bits + offset) for name, bits in wanted.items()}


def read_route_stats(path: Path) -> dict[int, tuple[int, ...]]:
    """Counts by layer from JSON ``{"layer": [count of expert 0, ...], ...}``.

    Raises UsageError.route_stats for anything else.
    """
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", code="route_stats", path=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}", code="route_stats", path=str(path)) from error
    expected = "an object of layers, each a list of counts"
    if not isinstance(document, dict):
        raise UsageError("route statistics", code="route_stats", path=str(path), expected=expected, found=document)
    counts = {}
    for layer, row in document.items():
        whole = isinstance(row, list) and row and all(type(count) is int and count >= 0 for count in row)
        if not layer.isdecimal() or not whole:
            problem = f"route statistics of layer {layer}"
            raise UsageError(problem, code="route_stats", path=str(path), expected=expected, found=row)
        counts[int(layer)] = tuple(row)
    return counts
