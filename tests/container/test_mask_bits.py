"""Bits of masks: LSB first, sizes from the nominal numbers, tails."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.cmf import ARCH
from builders.mask_sections import row
from cortiq.container.arch import read_arch
from cortiq.container.mask_bits import MaskGeometry, pack_rows, tail_row, unpack_rows


@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 2**32))
def test_packing_is_lsb_first_and_reversible(rows: int, bits: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 2, (rows, bits)).astype(np.bool_)
    packed = pack_rows(values)
    assert packed == b"".join(row(line) for line in values.astype(int).tolist())
    found = unpack_rows(packed, rows, bits)
    assert np.array_equal(found, values)
    assert not found.flags.writeable
    assert tail_row(packed, rows, bits) is None


@pytest.mark.parametrize("bits", [1, 7, 9, 17, 150])
def test_tails_are_found_and_dropped(bits: int) -> None:
    packed = bytearray(pack_rows(np.ones((3, bits), np.bool_)))
    packed[2 * (-(-bits // 8)) - 1] |= 0x80
    assert tail_row(bytes(packed), 3, bits) == 1
    assert unpack_rows(bytes(packed), 3, bits).sum() == 3 * bits


def test_sizes() -> None:
    arch = read_arch({**ARCH, "intermediate_size": 17, "num_loops": 3}, 0)
    geometry = MaskGeometry.of(arch)
    assert geometry.visits == 6
    assert geometry.sizes(False) == (6 * 3 + 2 + 1, 2 * 3 + 2 + 1)
    moe = {"num_experts": 9, "top_k": 2, "moe_intermediate_size": 32}
    geometry = MaskGeometry.of(read_arch({**ARCH, "moe": moe}, 0))
    assert geometry.sizes(False) == (2 * 12 + 2 + 1,)
    assert geometry.sizes(True) == (2 * 12 + 2 + 1 + 2 * 2,)
