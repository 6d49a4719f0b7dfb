"""The directory as bytes and as columns. What it refuses is in the hostile catalogue."""

from __future__ import annotations

import pytest

from builders.cmf import F16, Cmf, T, header
from cortiq.container import open_single, tensor_checks
from cortiq.container.directory import encode_directory
from cortiq.errors import Bounds


def test_encoding_is_the_opposite_of_parsing(cmf, opened):
    file = opened(cmf)
    assert encode_directory(file.tensors.values()) == file.tensors.raw == cmf.section("dir")


def test_combinations_that_mix_to_the_same_word_are_all_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_checks, "_MIX", tensor_checks._MIX * 0)
    made = Cmf(header(), [T(f"t{i}", F16, (i + 1,), bytes(2 * i + 2 + (i == 7))) for i in range(9)]).build()
    with pytest.raises(Bounds) as caught:
        open_single(made.save(tmp_path / "bad.cmf"))
    assert (caught.value.code, caught.value.tensor) == ("nbytes", "t7")
