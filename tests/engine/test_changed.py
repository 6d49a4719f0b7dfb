"""A model file that is cut, rewritten, replaced or removed while a model uses it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import cortiq
from builders.tiny import tokenizer_json, write_tiny
from cortiq.errors import Changed

PROMPT = [5, 6, 7]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny.cmf", tokenizer=tokenizer_json())


def generate(model: cortiq.Model, count: int = 4) -> tuple[int, ...]:
    return model.generate(PROMPT, max_tokens=count, temperature=0.0, ignore_eos=True).tokens


@pytest.mark.parametrize("left", [0, 128, 0.5])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_file_that_is_cut_ends_the_request_only(path: Path, left: float, threads: int) -> None:
    copy = path.with_name("copy.cmf")
    shutil.copy(path, copy)
    with cortiq.load(path, threads=threads) as model, cortiq.load(copy, threads=threads) as other:
        expected = generate(other)
        os.truncate(path, int(path.stat().st_size * left) if left < 1 else int(left))
        for _ in range(2):
            with pytest.raises(Changed):
                generate(model)
            with pytest.raises(Changed):
                model.forward(PROMPT)
        assert generate(other) == expected


def test_a_file_that_is_cut_between_two_tokens(path: Path) -> None:
    with cortiq.load(path) as model:
        chunks = model.stream(PROMPT, max_tokens=20, temperature=0.0, ignore_eos=True)
        next(chunks)
        os.truncate(path, 0)
        with pytest.raises(Changed):
            list(chunks)


def test_rewritten_in_place(path: Path) -> None:
    with cortiq.load(path) as model:
        generate(model)
        with path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"x")
        os.utime(path, ns=(0, 1))
        with pytest.raises(Changed):
            generate(model)


def test_replaced_removed_and_grown_files_go_on(path: Path) -> None:
    with cortiq.load(path) as model:
        expected = generate(model)
        with path.open("ab") as file:
            file.write(bytes(4096))
        assert generate(model) == expected
        other = path.with_name("other")
        other.write_bytes(b"something else")
        os.replace(other, path)
        assert generate(model) == expected
        path.unlink()
        assert generate(model) == expected
