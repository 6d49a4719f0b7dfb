"""The dtype and size of every tensor, before anything is encoded."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cortiq.convert.amplitudes import read_amplitudes
from cortiq.convert.options import ConvertOptions
from cortiq.convert.source import Block, Source, SourceTensor
from cortiq.layouts import layout
from cortiq.layouts.base import Survey, widen
from cortiq.layouts.bits import fits_f16
from cortiq.layouts.vbit import Vbit
from cortiq.quantize.column_factors import COLUMN_FACTORS, MOST_ERROR, ROW_SCALES, error_ratio, sample_spans


@dataclass(frozen=True, slots=True)
class Planned:
    """A tensor, its dtype, its size in bytes, and what the receipt has to say about the choice.

    ``survey`` is that of the encoder where the size depends on it, else None: then it is taken when it is needed.
    ``kept``   the bytes of the source are taken as they are
    """

    tensor: SourceTensor
    dtype: str
    nbytes: int
    note: str = ""
    survey: Survey | None = None
    kept: bool = False


def plan_tensors(source: Source, options: ConvertOptions) -> list[Planned]:
    """Dtypes by the options' policy. A vector that f16 cannot hold becomes f32.

    Tensors whose size the content decides are read once, in blocks; of matrices of eight bits a sample of rows is.

    Raises UsageError for a tensor rule that matches nothing, Parse or Bounds for one that a shape does not allow, and
    as ``with_sizes``.
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
        elif choice.weigh:
            dtype = weighed(tensor)
        planned.append(Planned(tensor, dtype, layout(dtype).payload_nbytes(tensor.shape), note))
    return with_sizes(planned, options)


def with_sizes(planned: list[Planned], options: ConvertOptions) -> list[Planned]:
    """``planned`` with the surveys and exact sizes of tensors whose size the content decides. They are read for it.

    The widths of vbit are settled together: its budget is that of ``options``. Raises NonFinite with the name of a
    tensor, UsageError.route_stats for statistics that do not cover its experts.
    """
    vbit = [entry.tensor for entry in planned if not entry.kept and isinstance(layout(entry.dtype), Vbit)]
    widths = options.budget().allocate(read_amplitudes(vbit, options.threads)) if vbit else {}
    sized = []
    for entry in planned:
        tensor, kind = entry.tensor, layout(entry.dtype)
        if not entry.kept and not kind.exact_size:
            survey = widths[tensor.name] if tensor.name in widths else take_survey(tensor, entry.dtype)
            entry = replace(entry, survey=survey, nbytes=kind.encoded_nbytes(tensor.shape, survey))
        sized.append(entry)
    return sized


def weighed(tensor: SourceTensor) -> str:
    """q8_2f where it halves the rounding error of q8_row, by a sample of the rows (``quantize.column_factors``)."""
    parts = []
    for first, last in sample_spans(*tensor.matrix_shape):
        parts.append(widen(tensor.read(first, last)))
        tensor.release(first, last)
    return COLUMN_FACTORS if error_ratio(np.concatenate(parts)) <= MOST_ERROR else ROW_SCALES


def columns_note(tensor: SourceTensor) -> str:
    """Why a grouped dtype cannot be used."""
    return f"{tensor.shape[1]} columns are no multiple of 32"


def take_survey(tensor: SourceTensor, dtype: str) -> Survey:
    """What the encoder of ``dtype`` must know of the whole tensor, by reading it in blocks of rows."""

    def read(first: int, last: int) -> Block:
        tensor.release(0, first)
        return tensor.read(first, last)

    return layout(dtype).survey(read, *tensor.matrix_shape)


def _fits(tensor: SourceTensor) -> bool:
    """Whether f16 can hold a vector. One that is not finite is left to the encoder to refuse."""
    values = widen(tensor.read(0, 1))
    return not bool(np.isfinite(values).all()) or fits_f16(values)
