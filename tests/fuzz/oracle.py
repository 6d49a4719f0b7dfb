"""What may happen to a file from anywhere: it is read to the last weight, or one error of the tree says why not."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import cmf_reader
from cortiq.container import File, open_single, verify
from cortiq.container.mapping import check_kept
from cortiq.edit.deep import check_text
from cortiq.errors import CortiqError, FormatError, HashMismatch, MissingTensor
from cortiq.layouts import layout, native
from cortiq.layouts.sizes import rows_and_cols
from cortiq.native import core
from cortiq.ops.linear import Matrix, linear

SECONDS = 1.0
MEMORY = 512 << 20
_U8 = 6
_MOST_WEIGHTS = 1 << 22


def examine(path: Path, turn: int = 0, *, deep: bool = False) -> str:
    """Open, inspect, verify, decode and multiply; ``ok``, or the kind of the error that opening gave.

    ``turn`` picks the tensor that is also decoded by its definition, and the instruction set. Raises AssertionError,
    and whatever else a mistake in the package raises.
    """
    started = time.process_time()
    try:
        with open_single(path) as file:
            kind = "ok"
            _inspect(file)
            _verify(file, deep)
            _decode(file, turn)
    except CortiqError as error:
        _check(error)
        kind = error.kind
    assert time.process_time() - started < SECONDS
    return kind


def accepts(path: Path) -> bool:
    """Whether the stand-alone reader opens the file and reads its masks and index."""
    try:
        file = cmf_reader.CmfFile(path)
        file.masks()
        file.index()
    except cmf_reader.CmfError:
        return False
    return True


def refused_lazily(path: Path) -> bool:
    """Whether the package refuses the file when it is opened or its sections are read."""
    try:
        with open_single(path) as file:
            _sections(file)
    except CortiqError:
        return True
    return False


@contextmanager
def limited_memory() -> Iterator[None]:
    """No more than ``MEMORY`` beyond what the process has mapped now."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _check(error: CortiqError) -> None:
    """An error of the tree that says what and, of a file, where."""
    assert error.code, str(error)
    assert str(error).isprintable()
    assert isinstance(error, FormatError | HashMismatch), str(error)


def _sections(file: File) -> None:
    assert file.masks is None or len(file.masks) >= 0
    assert file.sparse_index is None or file.envelope.index.nbytes
    assert len(file.skills) >= 0


def _inspect(file: File) -> None:
    """What `cortiq info`, `masks` and `skill list` read."""
    _sections(file)
    for name, mask in (file.masks or {}).items():
        assert mask.name == name
        assert all(0 <= share <= 1 for share in mask.inactive_shares().values())
    for skill in file.skills:
        for name in file.skills.replaced.get(skill, {}):
            _resolve(file, name, skill)
    assert file.tokenizer_json is None or len(file.tokenizer_json) == file.envelope.vocab.nbytes
    assert file.header.to_dict()["version"] == 2
    assert isinstance(file.tokenizer_config, dict | None)
    assert isinstance(file.generation, dict | None)
    assert set(file.section_hashes) >= {"header", "directory"}
    assert repr(file).isprintable()


def _verify(file: File, deep: bool) -> None:
    for error in verify(file, level="quick", threads=1).problems:
        _check(error)
    report = verify(file, threads=1, strict=True, checks=(check_text,) if deep else ())
    for error in report.problems:
        assert error.code or deep, str(error)
        assert str(error).isprintable()


def _resolve(file: File, name: str, skill: str) -> None:
    try:
        assert file.resolve(name, skill).name in file
    except MissingTensor:  # the skill replaces what is not there
        assert name not in file
    except CortiqError as error:
        _check(error)


def _decode(file: File, turn: int) -> None:
    isas = core.supported_isas()
    isa = isas[turn % len(isas)]
    for i, name in enumerate(file):
        entry, raw = file.tensors[name], file[name].raw
        kind = layout(entry.dtype)
        if entry.dtype == _U8:
            continue
        try:
            kind.validate(raw, entry.shape)
        except CortiqError as error:
            _check(error)
            continue
        rows, cols = rows_and_cols(entry.shape)
        assert rows * cols < _MOST_WEIGHTS
        values = native.decode_rows(kind, raw, entry.shape, 0, rows, isa=isa)
        if i == turn % len(file):
            expected = kind.decode(raw, entry.shape)
            assert np.array_equal(expected.reshape(rows, cols), values, equal_nan=True), name
        if len(entry.shape) == 2 and rows * cols:
            x = np.ones((1, cols), np.float32)
            linear(Matrix(entry.dtype, raw, rows, cols), x, isa=isa, mode="fast" if turn % 2 else "exact")
        check_kept(raw)
