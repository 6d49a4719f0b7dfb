"""The bits of a task mask: sizes from the nominal numbers of ``arch``, LSB first, one bit for a unit (SPEC 5).

A mask is FFN rows, head rows, layer gates and, where its meta says so, expert rows. In a looped model the FFN rows are
one for each visit of a layer, pass after pass; everything else is one for each layer (SPEC 1.1, bit 5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cortiq.container.arch import Arch

Bits = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class MaskGeometry:
    """The shape of every mask of a model. ``experts`` is None without ``arch.moe``."""

    layers: int
    loops: int
    ffn: int
    heads: int
    experts: int | None

    @classmethod
    def of(cls, arch: Arch) -> MaskGeometry:
        """The nominal numbers: neither tensor shapes nor heads per layer change them."""
        experts = None if arch.moe is None else arch.moe.num_experts
        return cls(arch.num_layers, arch.num_loops, arch.intermediate_size, arch.num_attention_heads, experts)

    @property
    def visits(self) -> int:
        """Layers times loops."""
        return self.layers * self.loops

    def areas(self, ffn_rows: int, with_experts: bool) -> tuple[tuple[int, int], ...]:
        """(rows, bits) of the areas in their order: FFN, heads, gates, experts."""
        areas = ((ffn_rows, self.ffn), (self.layers, self.heads), (1, self.layers))
        return (*areas, (self.layers, self.experts or 0)) if with_experts else areas

    def sizes(self, with_experts: bool) -> tuple[int, ...]:
        """Bytes of a mask with FFN rows for every visit and, in a looped model, for every layer."""
        rows = (self.visits,) if self.loops == 1 else (self.visits, self.layers)
        return tuple(sum(n * row_nbytes(bits) for n, bits in self.areas(r, with_experts)) for r in rows)


def row_nbytes(bits: int) -> int:
    """Bytes of a row of so many bits."""
    return -(-bits // 8)


def unpack_rows(data: bytes | memoryview, rows: int, bits: int) -> Bits:
    """``rows`` rows of ``bits`` bits as a read-only array [rows, bits]; tail bits are dropped."""
    packed = np.frombuffer(data, np.uint8).reshape(rows, row_nbytes(bits))
    values: Bits = np.unpackbits(packed, axis=1, count=bits, bitorder="little").view(np.bool_)
    values.flags.writeable = False
    return values


def pack_rows(values: Bits) -> bytes:
    """The bytes of an array [rows, bits]; tail bits are zero."""
    return np.packbits(values, axis=1, bitorder="little").tobytes()


def tail_row(data: bytes | memoryview, rows: int, bits: int) -> int | None:
    """First row with a bit set beyond its dimension, None when there is none."""
    if bits % 8 == 0 or rows == 0:
        return None
    last = np.frombuffer(data, np.uint8).reshape(rows, row_nbytes(bits))[:, -1]
    bad = np.flatnonzero(last >> (bits % 8))
    return int(bad[0]) if bad.size else None
