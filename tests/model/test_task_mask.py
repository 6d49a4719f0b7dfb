"""Files with a masks section: an open or unnamed default runs, a restricting one is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builders.mask_sections import info, ones, section
from builders.tiny import Tiny, arch_of
from cortiq.container import File, open_single, write_file
from cortiq.errors import UnsupportedArch
from cortiq.model.task_mask import check_default_mask

TINY = Tiny(width=36, vocab=64)
# Two layers: FFN rows of 36 bits (a ragged tail), head rows of 4, two gates, four experts in each layer.
OPEN = ones((2, 36), (2, 4), (1, 2))
EXPERTS = ones((2, 4))
MOE = {"num_experts": 4, "top_k": 2, "moe_intermediate_size": 32}

Check = Callable[[bytes | None], None]


@pytest.fixture
def check(tmp_path: Path) -> Iterator[Check]:
    """Checks a file with this masks section."""
    files: list[File] = []

    def run(masks: bytes | None) -> None:
        path = tmp_path / f"{len(files)}.cmf"
        arch = {**arch_of(TINY), "moe": MOE}
        write_file(path, {"arch": arch, "quant_type": "F32"}, [], masks=masks)
        files.append(open_single(path))
        check_default_mask(files[-1])

    yield run
    for file in files:
        file.close()


def masks(bits: bytes, default: str = "code", **changes: Any) -> bytes:
    return section((info("code", **changes), bits), default_task=default)


def test_an_open_mask_and_an_unnamed_one_change_nothing(check: Check) -> None:
    check(None)
    check(masks(OPEN))
    check(masks(OPEN + EXPERTS, has_expert_fields=True))
    check(masks(bytes(len(OPEN)), "general"))
    check(section(default_task=""))


@pytest.mark.parametrize("at", [0, 4, 10, 12, 13])
def test_one_closed_bit_is_refused_by_the_name_of_the_task(check: Check, at: int) -> None:
    bits = bytearray(OPEN + EXPERTS)
    bits[at] &= 0xFE
    with pytest.raises(UnsupportedArch) as caught:
        check(masks(bytes(bits), has_expert_fields=True))
    assert (caught.value.kind, caught.value.found) == ("UnsupportedArch.mask", "code")


def test_bits_beyond_a_dimension_open_nothing_and_close_nothing(check: Check) -> None:
    bits = bytearray(OPEN)
    bits[4] |= 0xF0
    check(masks(bytes(bits)))
    bits[4] &= 0xF7
    with pytest.raises(UnsupportedArch):
        check(masks(bytes(bits)))
