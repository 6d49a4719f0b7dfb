"""A first pass over the tensors that become vbit: the amplitudes of their rows decide how many bits each gets.

A few numbers a row are kept; the weights are read in blocks, and read again when they are encoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from cortiq.convert.source import SourceTensor
from cortiq.errors import NonFinite
from cortiq.layouts.base import Floats
from cortiq.layouts.native import row_absmax
from cortiq.layouts.vbit import amplitudes

_BLOCK_WEIGHTS = 1 << 20


def read_amplitudes(tensors: Iterable[SourceTensor], threads: int) -> dict[str, Floats]:
    """By name of the tensor, log2 of the largest magnitude of each row, f32 [rows].

    Raises NonFinite with the name of the tensor.
    """
    found = {}
    with ThreadPoolExecutor(threads, thread_name_prefix="cortiq-survey") as executor:
        for tensor in tensors:
            parts = executor.map(partial(_absmax, tensor), tensor.spans(_BLOCK_WEIGHTS))
            found[tensor.name] = amplitudes(np.concatenate(list(parts)))
    return found


def _absmax(tensor: SourceTensor, span: tuple[int, int]) -> Floats:
    first, last = span
    try:
        largest = row_absmax(np.ascontiguousarray(tensor.read(first, last)), first_row=first)
    except NonFinite as error:
        error.tensor = tensor.source_name
        raise
    tensor.release(first, last)
    return largest
