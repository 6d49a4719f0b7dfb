"""Every byte of a small file counts: one bit flipped in each, a file that ends at each, blocks that changed places."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.cmf import U8, pattern, two_layers
from builders.small_files import small_file, write_set
from cortiq.container import TensorSpec, open_single, verify, write_file
from cortiq.container.envelope import NBYTES
from cortiq.container.extents import extents, gaps
from cortiq.container.hashing import hash64
from cortiq.errors import Bounds, CortiqError, HashMismatch
from fuzz.memory_file import MemoryFile

PARTS = 4
BLOCK = 4096
FLAGS, DATA_LEN = (8, 12), (56, 64)


def judged(path: Path) -> tuple[bool, bool]:
    """Whether opening or verifying the file finds a problem, and whether strict verifying does."""
    try:
        with open_single(path) as file:
            report = verify(file, threads=1)
    except CortiqError:
        return True, True
    return bool(report.problems), bool(report.problems or report.warnings)


@pytest.mark.parametrize("part", range(PARTS))
def test_one_bit_of_every_byte(part: int) -> None:
    """All are problems under ``strict``. What survives without it is padding, the flags, the length of the blob."""
    original = small_file("model")
    memory = MemoryFile()
    path = memory.put(original)
    with open_single(path) as file:
        unowned = {at for gap in gaps(file) for at in range(gap.offset, gap.end)}
    assert judged(path) == (False, False)
    fd = os.open(path, os.O_RDWR)
    unseen, survivors = [], set()
    share = range(len(original) * part // PARTS, len(original) * (part + 1) // PARTS)
    for at in share:
        os.pwrite(fd, bytes([original[at] ^ 1 << at % 8]), at)
        plain, strict = judged(path)
        unseen += [] if strict else [at]
        survivors |= set() if plain else {at}
        os.pwrite(fd, original[at : at + 1], at)
    os.close(fd)
    memory.close()
    assert not unseen
    assert unowned & set(share) <= survivors
    assert survivors <= unowned | {*range(*FLAGS), *range(*DATA_LEN)}


def whole(name: str) -> Callable[[Path], list[Path]]:
    def write(folder: Path) -> list[Path]:
        path = folder / f"{name}.cmf"
        path.write_bytes(small_file(name))
        return [path]

    return write


FILES = {"model": whole("model"), "grown": whole("grown"), "set": write_set}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_ends_early_is_refused(name: str, tmp_path: Path) -> None:
    """But for the recovery record that a growth leaves behind what any reader needs: without it there is no undo."""
    for path in FILES[name](tmp_path):
        with open_single(path) as file:
            needed = max(extent.end for extent in extents(file))
            tensors = {name: bytes(file[name].raw) for name in file}
            record = file.size - needed
        assert record == 0 or name == "grown"
        for length in range(path.stat().st_size - 1, needed - 1, -1):
            os.truncate(path, length)
            with open_single(path) as file:
                assert {name: bytes(file[name].raw) for name in file} == tensors
        for length in range(needed - 1, -1, -1):
            os.truncate(path, length)
            with pytest.raises(Bounds) as caught:
                open_single(path)
            assert (caught.value.code == "envelope_short") == (length < NBYTES), length


def test_two_blocks_that_changed_places(tmp_path: Path) -> None:
    """hash64 mixes a word with its place by XOR, so words that are swapped keep it. The digests name the tensor."""
    blocks = [pattern(BLOCK, seed) for seed in range(3)]
    path = tmp_path / "model.cmf"
    write_file(path, two_layers().header, [spec("v", blocks[2]), spec("w", b"".join(blocks))])
    with open_single(path) as file:
        at = file.envelope.data.offset + file.tensors["w"].off
        stored = file.tensors["w"].hash
    data = bytearray(path.read_bytes())
    data[at : at + 2 * BLOCK] = blocks[1] + blocks[0]
    assert hash64(bytes(data[at : at + 3 * BLOCK])) == stored
    path.write_bytes(data)
    with open_single(path) as file:
        (problem,) = verify(file).problems
    assert isinstance(problem, HashMismatch)
    assert (problem.code, problem.tensor) == ("digest", "w")


def spec(name: str, payload: bytes) -> TensorSpec:
    return TensorSpec(name, U8, (len(payload),), len(payload), [payload])
