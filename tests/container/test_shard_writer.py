"""Writing sets: what each file holds, equal bytes for equal input, all or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import cmf_reader
from builders.cmf import header, pattern
from builders.operations import tensor
from builders.recorder import Recorder, install
from builders.sets import MAX_BYTES, single, whole, written_set
from cortiq.container import TensorSpec, open_single, verify
from cortiq.container import open as open_model
from cortiq.container.hashing import hash64
from cortiq.container.shard_writer import check_set_output, deal_out, sets_beside, write_shards
from cortiq.edit.shard import shard
from cortiq.errors import Parse, Shard, UsageError


@pytest.mark.parametrize(
    ("sizes", "most", "expected"),
    [
        ([], 100, [0]),
        ([10, 10, 10], 40, [1, 1, 1]),
        ([10, 10, 10], 79, [1, 1, 1]),
        ([10, 10, 10], 80, [2, 1]),
        ([10, 10, 10], 1000, [3]),
        ([1, 99, 1, 1], 40, [1, 1, 2]),
        ([99, 1], 40, [1, 1]),
        ([0, 0, 10], 40, [3]),
    ],
)
def test_tensors_are_dealt_out_in_order_by_their_size_in_f32(sizes, most, expected):
    assert deal_out([(size,) for size in sizes], most) == expected


def test_sizes_that_cannot_be_meant():
    with pytest.raises(UsageError, match="shard_size"):
        deal_out([(1,)], 0)
    with pytest.raises(UsageError, match="shard_count"):
        deal_out([(1,)] * 100_001, 4)


def test_every_file_is_valid_alone_and_has_its_own(tmp_path):
    written = written_set(tmp_path)
    assert [path.name for path in written.paths] == [f"m-0000{no}-of-00004.cmf" for no in range(1, 5)]
    assert written.size == sum(path.stat().st_size for path in written.paths)
    for no, path in enumerate(written.paths, 1):
        with open_single(path) as file:
            report = verify(file, strict=True, require_hashes=True)
            # A file alone cannot know the skills of the others.
            assert {problem.kind for problem in report.problems} <= {"Parse.skill_name"}
            assert report.digests == len(file) - 1 + (4 if no == 1 else 1)
            shard_block, fields = file.header.shard, file.header
            assert (shard_block.no, shard_block.count, shard_block.set) == (no, 4, written.set)
            assert (fields.to_dict()["arch"], fields.quant_type) == (header()["arch"], "F16")
            first = no == 1
            assert (fields["tokenizer_config"] is not None) == first
            assert bool(fields["skills"]) == first
            assert (file.section("vocab") is not None) == first
            assert (file.masks is not None) == first
            assert (file.section("index") is not None) == first
            assert file.envelope.features == (3 if first else 1)
            assert (shard_block.dirs is not None) == first
        assert cmf_reader.verify(cmf_reader.CmfFile(path)) == []
        assert len(cmf_reader.open_model(path).tensors) == 7 + 4


def test_the_first_file_names_all_directories(tmp_path):
    written = written_set(tmp_path)
    stated = []
    for path in written.paths:
        with open_single(path) as file:
            stated.append(hash64(file.tensors.raw))
    with open_model(written.paths[3]) as file:
        assert file.header.shard.dirs == tuple(stated)


def test_the_set_is_the_file(tmp_path):
    written = written_set(tmp_path)
    assert {whole(path) for path in (*written.paths, tmp_path / "m.cmf")} == {whole(tmp_path / "m.cmf")}


def test_equal_input_gives_equal_bytes_and_other_input_another_set(tmp_path):
    sets, one, two = {}, MAX_BYTES, 2 * MAX_BYTES
    for name, note, most in (("a", "", one), ("b", "", one), ("c", "x", one), ("d", "", two)):
        (tmp_path / name).mkdir()
        sets[name] = shard(single(tmp_path / name / "m.cmf", note=note), None, most)
    for one, two in zip(sets["a"].paths, sets["b"].paths, strict=True):
        assert one.read_bytes() == two.read_bytes()
    assert len({sets[name].set for name in "acd"}) == 3


@pytest.mark.parametrize("place", [0, 3, 6])
def test_one_byte_of_one_tensor_makes_another_set(place, tmp_path):
    def made(name: str, change: int) -> str:
        specs = [
            TensorSpec(f"t{i}", 6, (3000,), 3000, [pattern(3000, 5 + (change if i == place else 0))]) for i in range(7)
        ]
        return write_shards(tmp_path / name, header(), specs, MAX_BYTES, digests=False).set

    assert made("a", 0) == made("b", 0) != made("c", 1)


def test_one_file_of_one(tmp_path):
    written = shard(single(tmp_path / "m.cmf"), None, 10**9)
    assert [path.name for path in written.paths] == ["m-00001-of-00001.cmf"]
    with open_model(written.paths[0]) as file:
        assert (file.header.shard.count, file.parts) == (1, ())


def test_without_digests(tmp_path):
    written = write_shards(tmp_path / "m.cmf", header(), [tensor("a"), tensor("b")], 30_000, digests=False)
    with open_model(written.paths[0]) as file:
        assert list(file) == ["a", "b"]
        assert "digests" not in file.header


def test_a_name_twice_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(Parse, match="name_dup"):
        write_shards(tmp_path / "m", header(), [tensor("a"), tensor("b"), tensor("a")], 30_000)
    assert list(tmp_path.iterdir()) == []


def test_a_failing_tensor_leaves_the_old_set(tmp_path):
    written = written_set(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    bad = TensorSpec("z", 6, (9,), 9, [b"short"])
    with pytest.raises(UsageError, match="payload"):
        write_shards(tmp_path / "m", header(), [tensor("a"), tensor("b"), tensor("c"), bad], 36_000)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert whole(written.paths[0]) == whole(tmp_path / "m.cmf")


def test_a_standalone_skill_is_no_model(tmp_path):
    skills = [{"id": "s", "base_dir_hash": "01"}]
    with pytest.raises(UsageError, match="skill_file"):
        write_shards(tmp_path / "m", header(skills=skills), [tensor("skill.s.a")], 30_000)
    assert list(tmp_path.iterdir()) == []


def test_names_appear_last_to_first_when_all_is_on_disk(tmp_path, monkeypatch):
    disk = Recorder()
    install(monkeypatch, disk)
    write_shards(tmp_path / "m", header(), [tensor(name) for name in "abc"], 30_000)
    kinds = [step.kind for step in disk.steps]
    assert kinds[-8:] == ["sync"] * 3 + ["rename"] * 2 + ["sync_dir", "rename", "sync_dir"]
    assert "sync" not in kinds[:-8]
    names = [step.target for step in disk.steps if step.kind == "rename"]
    assert names == [f"m-0000{no}-of-00003.cmf" for no in (3, 2, 1)]
    assert {step.inode for step in disk.steps[-8:-5]} == {path.stat().st_ino for path in tmp_path.iterdir()}


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_a_rename_that_fails_never_shows_a_mixed_set(fails, tmp_path, monkeypatch):
    old = [tensor(name, 9000, 1) for name in "abc"]
    new = [tensor(name, 9000, 2) for name in "abc"]
    paths = write_shards(tmp_path / "m", header(), old, 40_000).paths
    real, left = os.rename, fails

    def rename(source: Path, target: Path) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(5, "no more")
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(OSError, match="no more"):
        write_shards(tmp_path / "m", header(), new, 40_000)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)
    if fails == 1:
        with open_model(paths[0]) as file:
            assert bytes(file["a"].raw) == pattern(9000, 1)
    else:
        with pytest.raises(Shard, match="set_mismatch"):
            open_model(paths[0])


def test_a_set_that_is_there_is_replaced_by_force_alone(tmp_path):
    written = written_set(tmp_path)
    source = tmp_path / "m.cmf"
    for output in ("m.cmf", "m", "m-00007-of-00009.cmf"):
        with pytest.raises(UsageError, match="exists"):
            check_set_output(tmp_path / output, [source], force=False)
        check_set_output(tmp_path / output, [source], force=True)
        with pytest.raises(UsageError, match="the same"):
            check_set_output(tmp_path / output, [written.paths[2]], force=True)
    check_set_output(tmp_path / "other", [source], force=False)
    assert sets_beside(written.paths) == []
    other = shard(source, None, 10**6, force=True)
    assert sets_beside(other.paths) == list(written.paths)
