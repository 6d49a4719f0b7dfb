"""The dtype and size of every tensor, before anything is encoded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cortiq.convert.options import ConvertOptions
from cortiq.convert.source import Block, Source, SourceTensor
from cortiq.layouts import layout
from cortiq.layouts.base import Survey, widen
from cortiq.layouts.bits import fits_f16


@dataclass(frozen=True, slots=True)
class Planned:
    """A tensor, its dtype, its size in bytes, and what the receipt has to say about the choice.

    ``survey`` is that of the encoder where the size depends on it, else None: then it is taken when it is needed.
    """

    tensor: SourceTensor
    dtype: str
    nbytes: int
    note: str = ""
    survey: Survey | None = None


def plan_tensors(source: Source, options: ConvertOptions) -> list[Planned]:
    """Dtypes by the options' policy. A vector that f16 cannot hold becomes f32.

    Tensors whose size the content decides are read once, in blocks.

    Raises UsageError for a tensor rule that matches nothing, Parse or Bounds for one that a shape does not allow.
    """
    policy = options.policy()
    policy.check_overrides(tensor.name for tensor in source.tensors)
    planned = []
    for tensor in source.tensors:
        choice = policy.choose(tensor.name, tensor.shape)
        dtype, note = choice.dtype, ""
        if choice.wanted is not None:
            columns = f"{tensor.shape[1]} columns are no multiple of 32"
            note = f"{tensor.name}: {dtype} instead of {choice.wanted}, its {columns}"
        elif dtype == "f16" and not choice.forced and len(tensor.shape) == 1 and not _fits(tensor):
            dtype, note = "f32", f"{tensor.name}: f32 instead of f16, which cannot hold its values"
        kind = layout(dtype)
        survey = None if kind.exact_size else take_survey(tensor, dtype)
        nbytes = kind.payload_nbytes(tensor.shape) if survey is None else kind.encoded_nbytes(tensor.shape, survey)
        planned.append(Planned(tensor, dtype, nbytes, note, survey))
    return planned


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
