"""What the records of a directory must satisfy, checked on columns (SPEC 1.2, 3, 4).

Sums of an offset and a size are exact in 64 bits once ``check_types`` has refused those that wrap.
"""

from __future__ import annotations

import numpy as np

from cortiq.container.envelope import Envelope
from cortiq.container.records_table import (
    ALIGNMENT,
    CONTENT_BYTES,
    MAX_NDIM,
    TYPE_BYTES,
    RecordTable,
    first,
    record_offset,
)
from cortiq.errors import Bounds, FormatError, Parse
from cortiq.layouts import LAYOUTS, check_tensor

_MIX = np.array([0x9E3779B97F4A7C15 * (2 * i + 1) % 2**64 for i in range(5)], np.uint64)  # odd, so nothing is lost
_LIVE_SECTIONS = ("header", "directory", "masks", "vocab", "index")


def check_types(table: RecordTable) -> None:
    """Dimensions, dtype, shape, and the size they make.

    Raises Parse.ndim, .dtype, .shape_tail, Bounds.tensor for a range that wraps, Bounds.size_overflow and .nbytes,
    and the shape rules of the layouts.
    """
    ndim = table.column("ndim")
    bad = first(ndim > MAX_NDIM)
    if bad is not None:
        raise table.error(Parse, bad, "ndim", "too many dimensions", (f"at most {MAX_NDIM}", int(ndim[bad])))
    dtype = table.column("dtype")
    bad = first(~np.isin(dtype, list(LAYOUTS)))
    if bad is not None:
        facts = ("a dtype in use (SPEC 3.1)", int(dtype[bad]))
        raise table.error(Parse, bad, "dtype", "unknown or reserved dtype", facts)
    shape = table.column("shape")
    bad = first(((shape != 0) & (np.arange(MAX_NDIM) >= ndim[:, None])).any(axis=1))
    if bad is not None:
        tail = (f"zeros after {ndim[bad]} dimensions", shape[bad].tolist())
        raise table.error(Parse, bad, "shape_tail", "a dimension that is not used is not zero", tail)
    off, nbytes = table.column("off"), table.column("nbytes")
    bad = first(off + nbytes < off)
    if bad is not None:
        span = ("an end below 2^64", f"{off[bad]} + {nbytes[bad]}")
        raise table.error(Bounds, bad, "tensor", "the range of the tensor wraps", span)
    _check_sizes(table)


def check_ranges(table: RecordTable, envelope: Envelope) -> None:
    """Each tensor is aligned, inside the data section, apart from the other tensors and from the other sections.

    Raises Bounds.tensor_align, .tensor, .tensor_overlap and .tensor_over_section.
    """
    off, nbytes = table.column("off"), table.column("nbytes")
    bad = first(off % ALIGNMENT != 0)
    if bad is not None:
        facts = (f"a multiple of {ALIGNMENT}", int(off[bad]))
        raise table.error(Bounds, bad, "tensor_align", "the tensor is not aligned", facts)
    bad = first(off + nbytes > envelope.data.nbytes)
    if bad is not None:
        span = (f"at most {envelope.data.nbytes} bytes of data", f"{off[bad]} + {nbytes[bad]}")
        raise table.error(Bounds, bad, "tensor", "the tensor does not lie in the data section", span)
    _check_overlap(table)
    _check_sections(table, envelope)


def _check_sizes(table: RecordTable) -> None:
    """The rule of the dtype, once for each combination of dtype, shape and size that occurs."""
    for i in _combinations(table):
        record = table.records[i]
        shape = tuple(record["shape"][: record["ndim"]].tolist())
        try:
            check_tensor(int(record["dtype"]), shape, int(record["nbytes"]))
        except FormatError as error:
            error.section, error.tensor, error.offset = "directory", table.names[i], record_offset(table.base, i)
            if error.expected is None:
                error.expected = f"what a dtype {record['dtype']} tensor can be"
            raise


def _combinations(table: RecordTable) -> list[int]:
    """The first record of each combination of dtype, shape and size, in the order of the directory."""
    words = np.zeros((len(table), 5), np.uint64)
    width = TYPE_BYTES.stop - TYPE_BYTES.start
    words.view(np.uint8)[:, :width] = table.bytes_of(TYPE_BYTES)
    words[:, 4] = table.column("nbytes")
    mixed = np.bitwise_xor.reduce(words * _MIX, axis=1)
    _, firsts, group = np.unique(mixed, return_index=True, return_inverse=True)
    if not np.array_equal(words, words[firsts[group]]):  # two combinations were mixed to the same word
        return list(range(len(table)))
    found: list[int] = np.sort(firsts).tolist()
    return found


def _check_overlap(table: RecordTable) -> None:
    """In the order of offsets an overlap shows between neighbours."""
    for before, after in overlapping(table):
        content = table.bytes_of(CONTENT_BYTES)
        if not np.array_equal(content[before], content[after]):
            end = int(table.column("off")[before] + table.column("nbytes")[before])
            facts = (f"an offset of at least {end}", int(table.column("off")[after]))
            message = f"shares bytes with tensor {table.names[before]!r}"
            raise table.error(Bounds, after, "tensor_overlap", message, facts)


def overlapping(table: RecordTable) -> list[tuple[int, int]]:
    """Pairs of neighbours, in the order of offsets, that share bytes. In a valid directory: exact aliases."""
    filled = np.flatnonzero(table.column("nbytes"))
    off, nbytes = table.column("off")[filled], table.column("nbytes")[filled]
    order = np.lexsort((nbytes, off))
    starts = off[order]
    ends = starts + nbytes[order]
    clash = np.flatnonzero(starts[1:] < ends[:-1])
    return [(int(filled[order[at]]), int(filled[order[at + 1]])) for at in clash]


def _check_sections(table: RecordTable, envelope: Envelope) -> None:
    starts = table.column("off") + np.uint64(envelope.data.offset)
    ends = starts + table.column("nbytes")
    for name in _LIVE_SECTIONS:
        part = envelope.section(name)
        bad = first((starts < part.end) & (ends > part.offset) & (ends > starts)) if part.nbytes else None
        if bad is not None:
            facts = (f"no byte of {part.offset} to {part.end}", f"{starts[bad]} to {ends[bad]}")
            message = f"the tensor lies over the section {name}"
            raise table.error(Bounds, bad, "tensor_over_section", message, facts)
