from __future__ import annotations

from pathlib import Path

import pytest

from cortiq.container.shard_names import files_of_sets, shard_base, shard_name, split_shard_name


def test_names_have_five_digits_and_six_where_they_must():
    assert shard_name("m", 1, 3) == "m-00001-of-00003.cmf"
    assert shard_name("m", 100_000, 100_000) == "m-100000-of-100000.cmf"


@pytest.mark.parametrize(("no", "count"), [(1, 1), (2, 5), (99_999, 100_000), (100_000, 100_000)])
@pytest.mark.parametrize("base", ["m", "a-00001-of-00002", "", "with space\n"])
def test_a_name_is_taken_apart(base, no, count):
    assert split_shard_name(shard_name(base, no, count)) == (base, no, count)


@pytest.mark.parametrize("name", ["m.cmf", "m-0001-of-0002.cmf", "m-00001-of-00002", "m-00001-of-00002.cmf.sig"])
def test_other_names_are_no_shards(name):
    assert split_shard_name(name) is None


def test_the_base_of_a_path():
    assert shard_base(Path("x/m.cmf")) == "m"
    assert shard_base(Path("x/m")) == "m"
    assert shard_base(Path("x/m-00002-of-00003.cmf")) == "m"


def test_files_of_every_set_of_a_base(tmp_path):
    names = ["m-00001-of-00002.cmf", "m-00002-of-00002.cmf", "m-00003-of-00009.cmf"]
    for name in [*names, "m.cmf", "other-00001-of-00002.cmf", "m-00001-of-00002.cmf.sig"]:
        (tmp_path / name).touch()
    assert [path.name for path in files_of_sets(tmp_path, "m")] == names
    assert list(files_of_sets(tmp_path / "none", "m")) == []
