"""The dtype and size of every tensor, before anything is encoded."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cortiq.convert.amplitudes import read_amplitudes
from cortiq.convert.options import ConvertOptions
from cortiq.convert.source import Source, SourceTensor
from cortiq.layouts import layout
from cortiq.layouts.base import Bytes, widen
from cortiq.layouts.bits import fits_f16
from cortiq.layouts.vbit import Vbit


@dataclass(frozen=True, slots=True)
class Planned:
    """A tensor, its dtype, its size in bytes, and what the receipt has to say about the choice.

    ``widths``  bits of each row, u8 [rows], of a vbit tensor, else None
    ``kept``    the bytes of the source are taken as they are
    """

    tensor: SourceTensor
    dtype: str
    nbytes: int
    note: str = ""
    widths: Bytes | None = None
    kept: bool = False


def plan_tensors(source: Source, options: ConvertOptions) -> list[Planned]:
    """Dtypes by the options' policy. A vector that f16 cannot hold becomes f32.

    Raises UsageError for a tensor rule that matches nothing, Parse or Bounds for one that a shape does not allow, and
    as ``with_widths``.
    """
    policy = options.policy(tensor.name for tensor in source.tensors)
    planned = []
    for tensor in source.tensors:
        choice = policy.choose(tensor.name, tensor.shape)
        dtype, note = choice.dtype, ""
        if choice.wanted is not None:
            note = f"{tensor.name}: {dtype} instead of {choice.wanted}, its {columns_note(tensor)}"
        elif dtype == "f16" and not choice.forced and len(tensor.shape) == 1 and not _fits(tensor):
            dtype, note = "f32", f"{tensor.name}: f32 instead of f16, which cannot hold its values"
        planned.append(Planned(tensor, dtype, layout(dtype).payload_nbytes(tensor.shape), note))
    return with_widths(planned, options)


def with_widths(planned: list[Planned], options: ConvertOptions) -> list[Planned]:
    """``planned`` with the widths and exact sizes of vbit tensors, whose rows are read for it.

    Raises NonFinite with the name of a tensor, UsageError.route_stats for statistics that do not cover its experts.
    """
    variable = {entry.tensor.name: entry for entry in planned if not entry.kept and _is_vbit(entry)}
    if not variable:
        return planned
    levels = read_amplitudes((entry.tensor for entry in variable.values()), options.threads)
    widths = options.budget().allocate(levels)
    return [_sized(entry, widths[entry.tensor.name]) if entry.tensor.name in variable else entry for entry in planned]


def columns_note(tensor: SourceTensor) -> str:
    """Why a grouped dtype cannot be used."""
    return f"{tensor.shape[1]} columns are no multiple of 32"


def _is_vbit(entry: Planned) -> bool:
    return isinstance(layout(entry.dtype), Vbit)


def _sized(entry: Planned, widths: Bytes) -> Planned:
    kind = layout(entry.dtype)
    assert isinstance(kind, Vbit)
    return replace(entry, nbytes=kind.exact_nbytes(entry.tensor.shape, widths), widths=widths)


def _fits(tensor: SourceTensor) -> bool:
    """Whether f16 can hold a vector. One that is not finite is left to the encoder to refuse."""
    values = widen(tensor.read(0, 1))
    return not bool(np.isfinite(values).all()) or fits_f16(values)
