"""What a conversion did, in a few lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from cortiq.convert.plan import Planned
from cortiq.convert.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """``output`` is the file, or the first of as many as ``files`` says. ``dtypes`` counts tensors, ``dtype_bytes``
    their payloads in bytes. ``bits_per_weight`` is the mean over all tensors. ``warnings`` are whole sentences without
    a full stop.
    """

    source: str
    output: Path
    files: int
    arch_name: str
    tensors: int
    weights: int
    dtypes: dict[str, int]
    dtype_bytes: dict[str, int]
    bytes_in: int
    bytes_out: int
    bits_per_weight: float
    warnings: tuple[str, ...]

    def lines(self) -> list[str]:
        """For people, one fact a line."""
        others = f" and {self.files - 1} more" if self.files > 1 else ""
        kinds = ", ".join(f"{count} {dtype}" for dtype, count in self.dtypes.items())
        return [
            f"{self.output.name}{others}: {self.arch_name} from {self.source}",
            f"{self.tensors} tensors ({kinds}), {self.weights:,} weights",
            f"{_size(self.bytes_in)} read, {_size(self.bytes_out)} written, {self.bits_per_weight:.2f} bits a weight",
            *(f"note: {warning}" for warning in self.warnings),
        ]


def make_receipt(source: Source, planned: Sequence[Planned], notes: Sequence[str], paths: Sequence[Path]) -> Receipt:
    """The receipt of a finished conversion into the files ``paths``."""
    counts = Counter(entry.dtype for entry in planned)
    weights = sum(prod(entry.tensor.shape) for entry in planned)
    payload = sum(entry.nbytes for entry in planned)
    own = [entry.note for entry in planned if entry.note]
    return Receipt(
        source=source.name,
        output=paths[0],
        files=len(paths),
        arch_name=str(source.arch["arch_name"]),
        tensors=len(planned),
        weights=weights,
        dtypes=dict(counts.most_common()),
        dtype_bytes={kind: sum(e.nbytes for e in planned if e.dtype == kind) for kind in counts},
        bytes_in=sum(entry.tensor.nbytes for entry in planned),
        bytes_out=sum(path.stat().st_size for path in paths),
        bits_per_weight=payload * 8 / weights,
        warnings=(*source.notes, *notes, *own),
    )


def _size(nbytes: int) -> str:
    """Decimal megabytes, as disks are sold."""
    return f"{nbytes / 1e6:,.1f} MB"
