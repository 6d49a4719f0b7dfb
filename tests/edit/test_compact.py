"""Compaction: the current version alone, byte for byte the same whatever the way to it was."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from builders.cmf import header, two_layers
from builders.operations import base, edit, state_of, tensor
from cortiq.container import grow, open_single, verify, write_file
from cortiq.container.digest import read_digests
from cortiq.container.writer import TensorSpec
from cortiq.edit.compact import compact
from cortiq.edit.history import log, undo
from cortiq.errors import HashMismatch, UsageError

DATA = Path(__file__).parents[1] / "data" / "container"


def fresh(path: Path, target: Path) -> bytes:
    """The same content written anew by hand."""
    with open_single(path) as file:
        specs = [TensorSpec(n, e.dtype, e.shape, e.nbytes, [file[n].raw]) for n, e in file.tensors.items()]
        masks, vocab, index = (file.section(name) for name in ("masks", "vocab", "index"))
        write_file(target, file.header, specs, masks=masks, vocab=vocab, index=index)
    return target.read_bytes()


def test_in_place(tmp_path: Path) -> None:
    path = base(tmp_path / "model.cmf")
    edit(path)
    undo(path)
    before, size, steps = state_of(path), path.stat().st_size, []
    sizes = compact(path, progress=lambda done, total: steps.append((done, total)))
    assert state_of(path) == before
    assert (sizes.before, sizes.after) == (size, path.stat().st_size)
    assert sizes.after < sizes.before
    assert steps[-1][0] == steps[-1][1]
    assert len(log(path).versions) == 1
    with open_single(path) as file:
        report = verify(file, strict=True, require_hashes=True)
        assert report.ok
        assert report.dead == 0


def test_bytes_do_not_depend_on_history(tmp_path: Path) -> None:
    one, two = base(tmp_path / "1.cmf"), base(tmp_path / "2.cmf")
    edit(one)
    grow(one, add=[tensor("x")])
    undo(one)
    undo(one)
    expected = fresh(two, tmp_path / "3.cmf")
    compact(one)
    compact(two)
    assert one.read_bytes() == two.read_bytes() == expected
    compact(two)
    assert two.read_bytes() == expected


def test_growth_taken_back_leaves_no_trace(tmp_path: Path) -> None:
    path = two_layers().save(tmp_path / "model.cmf")
    compact(path)
    before = path.read_bytes()
    grow(path, add=[tensor("x")], masks=b"")
    undo(path)
    compact(path)
    assert path.read_bytes() == before


def test_to_another_file(tmp_path: Path) -> None:
    path = base(tmp_path / "model.cmf")
    before = path.read_bytes()
    compact(path, tmp_path / "small.cmf")
    assert path.read_bytes() == before
    assert state_of(tmp_path / "small.cmf") == state_of(path)


def test_a_file_grown_by_another_writer(tmp_path: Path) -> None:
    path = tmp_path / "grown.cmf"
    path.write_bytes((DATA / "grown-1.cmf").read_bytes())
    before = state_of(path)
    compact(path)
    assert state_of(path) == before
    grow(path, add=[tensor("x")])
    undo(path)
    assert state_of(path) == before


def test_the_layout_is_that_of_the_reference_writer(tmp_path: Path) -> None:
    """The reference, given the content of this twice grown file, writes a directory with this hash (SPEC 9.1)."""
    path = tmp_path / "grown.cmf"
    path.write_bytes(gzip.decompress((DATA / "grown-2.cmf.gz").read_bytes()))
    compact(path)
    with open_single(path) as file:
        assert file.dir_hash == 0x44B8218ED68E9548
        assert file.size == 493_048


def test_an_open_reader_keeps_its_file(tmp_path: Path) -> None:
    path = base(tmp_path / "model.cmf")
    with open_single(path) as file:
        compact(path)
        assert verify(file).ok


def test_damage_is_not_copied(tmp_path: Path) -> None:
    made = two_layers()
    at = made.get("data_off") + 5
    path = made.put(at, bytes([made.data[at] ^ 1])).save(tmp_path / "model.cmf")
    before = path.read_bytes()
    with pytest.raises(HashMismatch):
        compact(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.cmf"]


def test_a_file_of_a_shard_set(tmp_path: Path) -> None:
    path = two_layers().with_header(shard={"no": 1, "count": 2}).save(tmp_path / "x.cmf")
    with pytest.raises(UsageError) as caught:
        compact(path)
    assert caught.value.code == "shards"


def test_digests_are_made_anew(tmp_path: Path) -> None:
    """They name the directory, which a compaction changes; growth taken back leaves no trace here either."""
    path = tmp_path / "model.cmf"
    write_file(path, header(), [tensor("a"), tensor("b", 100, 2)], vocab=b"{}")
    before = path.read_bytes()
    grow(path, add=[tensor("c", 300, 3)])
    compact(path)
    with open_single(path) as file:
        assert verify(file, strict=True, require_hashes=True).ok
        assert read_digests(file) is not None
    grow(path, remove=["c"])
    compact(path)
    assert path.read_bytes() == before
