"""Opening sets; what a bad set answers is in the hostile catalogue, rows J."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

import cortiq.container
from builders.cmf import F16, Cmf, T, header, pattern, two_layers
from cortiq.container import open_single
from cortiq.container.names import read_names
from cortiq.container.records_table import COUNTS_NBYTES, RECORD
from cortiq.container.shard_names import shard_name
from cortiq.errors import Bounds, Changed, MissingTensor, Shard, UsageError

COUNT = 3


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """A set of three files with three tensors each; the first has every kind of section."""
    made = []
    for no in range(1, COUNT + 1):
        first = two_layers() if no == 1 else Cmf(header(tokenizer_config=None), [])
        tensors = [T(f"layer.{no}.{i}", F16, (64 * no,), pattern(128 * no, 10 * no + i)) for i in range(3)]
        cmf = Cmf(
            {**first.header, "shard": {"no": no, "count": COUNT}},
            tensors,
            masks=first.masks,
            vocab=first.vocab,
            index=first.index,
            features=3 if no == 1 else 1,
        )
        made.append(cmf.build().save(tmp_path / shard_name("m", no, COUNT)))
    return made


@pytest.mark.parametrize("no", [1, 2, 3])
def test_any_name_opens_the_whole_set(paths, no):
    with cortiq.container.open(paths[no - 1]) as file:
        assert file.path == paths[0]
        assert [part.path for part in file.parts] == paths
        assert list(file) == [f"layer.{k}.{i}" for k in (1, 2, 3) for i in range(3)]
        assert file.size == sum(path.stat().st_size for path in paths)
        assert sorted(file.masks) == ["code", "general"]
        assert file.tokenizer_json == two_layers().vocab
        assert file.tokenizer_config["eos_token_ids"] == [2]
        assert file.sparse_index is not None


def test_tensors_are_read_where_they_are(paths):
    with cortiq.container.open(paths[0]) as file:
        for name, entry in file.tensors.items():
            no, i = (int(part) for part in name.split(".")[1:])
            payload = pattern(128 * no, 10 * no + i)
            assert bytes(file[name].raw) == payload
            assert ctypes.string_at(file.address(entry), entry.nbytes) == payload
            home = file.home(name)
            assert home.path == paths[no - 1]
            assert home.mapping.address < file.address(entry) < file.map_end(entry)
            assert file.map_end(entry) == home.mapping.address + paths[no - 1].stat().st_size
            file.release(entry, 0, entry.nbytes)
        with pytest.raises(MissingTensor):
            _ = file["layer.4.0"]


def test_the_merged_directory_is_a_directory(paths):
    with cortiq.container.open(paths[0]) as file:
        tensors = file.tensors
        assert [tensors.at(i).name for i in range(len(tensors))] == list(tensors)
        pool = COUNTS_NBYTES + RECORD.itemsize * len(tensors)
        records = tensors.table.records
        assert list(read_names(tensors.raw[pool:], records["name_off"], records["name_len"], 0)) == list(tensors)
        assert file.dir_hash not in (0, file.envelope.directory_hash)


def test_the_file_alone_can_be_opened(paths):
    for no, path in enumerate(paths, 1):
        with open_single(path) as file:
            assert (file.parts, len(file), file.header.shard.no) == ((), 3, no)
            assert file.home(f"layer.{no}.0") is file


def test_closing_closes_every_file(paths):
    before = os.listdir("/proc/self/fd")
    file = cortiq.container.open(paths[2])
    view = file["layer.2.0"].raw
    file.close()
    file.close()
    assert os.listdir("/proc/self/fd") != before  # the view holds its mapping
    assert bytes(view) == pattern(256, 20)
    del view
    assert os.listdir("/proc/self/fd") == before
    assert file.closed
    assert all(part.closed for part in file.parts)
    for name in ("layer.1.0", "layer.3.0"):
        with pytest.raises(UsageError, match="closed"):
            _ = file[name]


def test_a_changed_file_is_named(paths):
    with cortiq.container.open(paths[0]) as file:
        file.check_usable()
        os.truncate(paths[1], 4096)
        with pytest.raises(Changed, match=paths[1].name):
            file.check_usable()


def test_a_truncated_file_is_named_and_nothing_stays_open(paths):
    before = os.listdir("/proc/self/fd")
    os.truncate(paths[1], paths[1].stat().st_size - 1)
    with pytest.raises(Bounds, match=paths[1].name):
        cortiq.container.open(paths[0])
    assert os.listdir("/proc/self/fd") == before


def test_the_missing_file_is_named_by_its_path(paths):
    paths[2].unlink()
    with pytest.raises(Shard) as caught:
        cortiq.container.open(paths[0])
    assert (caught.value.kind, caught.value.path) == ("Shard.missing", str(paths[2]))


def test_another_name_is_refused_with_the_name_it_needs(paths):
    moved = paths[0].rename(paths[0].with_name("renamed.cmf"))
    with pytest.raises(Shard, match=r"-00001-of-00003\.cmf, found renamed\.cmf") as caught:
        cortiq.container.open(moved)
    assert caught.value.code == "mismatch"


def test_a_set_of_one_is_a_file(tmp_path):
    cmf = Cmf(header(shard={"no": 1, "count": 1}), [T("a", F16, (64,), pattern(128))]).build()
    with cortiq.container.open(cmf.save(tmp_path / "any.cmf")) as file:
        assert file.parts == ()


def test_opening_stops_at_the_first_missing_file(tmp_path, monkeypatch):
    cmf = Cmf(header(shard={"no": 1, "count": 100_000}), [T("a", F16, (64,), pattern(128))]).build()
    path = cmf.save(tmp_path / shard_name("m", 1, 100_000))
    opened, real = [], os.open

    def counted(name, *arguments, **more):
        opened.append(Path(name).name)
        return real(name, *arguments, **more)

    monkeypatch.setattr(os, "open", counted)
    monkeypatch.setattr(os, "stat", None)
    with pytest.raises(Shard, match=r"m-00002-of-100000\.cmf"):
        cortiq.container.open(path)
    assert opened == ["m-00001-of-100000.cmf", "m-00002-of-100000.cmf"]
