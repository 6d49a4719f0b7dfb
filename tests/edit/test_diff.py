"""Comparing two files: fields, sections, tensors by identity and by value."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.cmf import F16, F32, Q8_ROW, VBIT, Cmf, T, header, two_layers
from cortiq.container import TensorSpec, open_single, write_file
from cortiq.edit.diff import Diff, diff
from cortiq.errors import Parse
from cortiq.layouts import layout

RNG = np.random.default_rng(3)
MATRIX = RNG.standard_normal((8, 64)).astype(np.float32)


def spec(name: str, values: Any = MATRIX, dtype: int = F32) -> TensorSpec:
    payload = layout(dtype).encode(np.asarray(values, np.float32))
    return TensorSpec(name, dtype, np.shape(values), len(payload), [payload])


def compared(folder: Path, a: list[TensorSpec], b: list[TensorSpec], **options: Any) -> Diff:
    fields = options.pop("fields", (header(), header()))
    kept = options.pop("digests", (True, True))
    sections = options.pop("sections", ({}, {}))
    for i, specs in enumerate((a, b)):
        write_file(folder / f"{i}.cmf", fields[i], specs, digests=kept[i], **sections[i])
    with open_single(folder / "0.cmf") as first, open_single(folder / "1.cmf") as second:
        return diff(first, second, **options)


@pytest.mark.parametrize("kept", [(True, True), (True, False), (False, False)])
def test_equal_files(tmp_path: Path, kept: tuple[bool, bool]) -> None:
    found = compared(tmp_path, [spec("a"), spec("b", dtype=Q8_ROW)], [spec("a"), spec("b", dtype=Q8_ROW)], digests=kept)
    assert found.equal
    assert found.same == 2
    assert found.identity == ("sha256" if all(kept) else "hash64")


def test_order_does_not_matter(tmp_path: Path) -> None:
    assert compared(tmp_path, [spec("a"), spec("b", -MATRIX)], [spec("b", -MATRIX), spec("a")]).equal


def test_added_removed_changed(tmp_path: Path) -> None:
    found = compared(tmp_path, [spec("a"), spec("b")], [spec("a", MATRIX * 1.5), spec("c")])
    assert [entry.name for entry in found.removed] == ["b"]
    assert [entry.name for entry in found.added] == ["c"]
    (change,) = found.changed
    assert change.same_kind
    assert change.relative == pytest.approx(0.5, rel=1e-6)
    assert change.largest == pytest.approx(np.abs(MATRIX).max() / 2, rel=1e-6)
    assert not found.equal


def test_another_dtype_is_compared_by_value(tmp_path: Path) -> None:
    (change,) = compared(tmp_path, [spec("a")], [spec("a", dtype=Q8_ROW)]).changed
    assert not change.same_kind
    assert change.relative is not None
    assert 0 < change.relative < 0.01


def test_the_same_values_in_other_bytes(tmp_path: Path) -> None:
    halves = MATRIX.astype(np.float16).astype(np.float32)
    (change,) = compared(tmp_path, [spec("a", halves)], [spec("a", halves, F16)]).changed
    assert (change.relative, change.largest) == (0.0, 0.0)


def test_another_shape_has_no_error(tmp_path: Path) -> None:
    (change,) = compared(tmp_path, [spec("a")], [spec("a", MATRIX[:4])]).changed
    assert (change.relative, change.largest) == (None, None)


def test_from_nothing_the_relative_error_is_infinite(tmp_path: Path) -> None:
    (change,) = compared(tmp_path, [spec("a", MATRIX * 0)], [spec("a")]).changed
    assert change.relative == math.inf


def test_without_values(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    progress = lambda done, total: calls.append((done, total))  # noqa: E731
    (change,) = compared(tmp_path, [spec("a")], [spec("a", -MATRIX)], values=False, progress=progress).changed
    assert change.relative is None
    assert calls == [(MATRIX.nbytes, MATRIX.nbytes)]


def test_swapped_words_are_seen_by_digests_only(tmp_path: Path) -> None:
    swapped = np.concatenate([MATRIX[:, 32:], MATRIX[:, :32]], axis=1)
    assert compared(tmp_path, [spec("a")], [spec("a", swapped)]).changed
    weak = compared(tmp_path, [spec("a")], [spec("a", swapped)], digests=(False, True))
    assert weak.equal
    assert weak.identity == "hash64"


def test_fields(tmp_path: Path) -> None:
    before, after = header(provenance={"tool": "x", "n": 1}), header(provenance={"tool": "y", "n": 1.0, "new": [1]})
    after["arch"]["rope_theta"] = 5000.0
    after["arch"]["tie_word_embeddings"] = True
    found = compared(tmp_path, [spec("a")], [spec("a")], fields=(before, after))
    assert [(c.path, c.before, c.after) for c in found.fields] == [
        ("arch.rope_theta", 10000.0, 5000.0),
        ("arch.tie_word_embeddings", False, True),
        ("provenance.tool", "x", "y"),
        ("provenance.new", None, [1]),
    ]


def test_skills_are_compared_by_id(tmp_path: Path) -> None:
    one, two = {"id": "sql", "name": "SQL"}, {"id": "poem"}
    fields = (header(skills=[one, two]), header(skills=[two, {**one, "name": "Sequel"}, {"id": "go"}]))
    found = compared(tmp_path, [spec("a")], [spec("a")], fields=fields)
    assert [(c.path, c.before, c.after) for c in found.fields] == [
        ("skills.sql.name", "SQL", "Sequel"),
        ("skills.go", None, {"id": "go"}),
    ]


def test_sections(tmp_path: Path) -> None:
    sections = ({"vocab": b"{}", "index": b"i"}, {"vocab": b"[]", "index": b"i", "masks": two_layers().masks})
    found = compared(tmp_path, [spec("a")], [spec("a")], sections=sections)
    assert found.sections == ("masks", "vocab")
    assert not found.fields


def test_content_that_does_not_decode(tmp_path: Path) -> None:
    payload = bytes([3, 7, 4, 8]) + bytes(2 * 4 + 12 + 16 + 28 + 32)
    made = [Cmf(header(), [T("t", VBIT, (4, 32), payload[:-1] + bytes([i]))]).build() for i in range(2)]
    paths = [made[i].save(tmp_path / f"{i}.cmf") for i in range(2)]
    with open_single(paths[0]) as a, open_single(paths[1]) as b:
        (change,) = diff(a, b).changed
    assert change.relative is None


def test_digests_that_cannot_be_read(tmp_path: Path) -> None:
    paths = [Cmf(header(digests=[]), []).build().save(tmp_path / f"{i}.cmf") for i in range(2)]
    with open_single(paths[0]) as a, open_single(paths[1]) as b, pytest.raises(Parse, match="digests"):
        diff(a, b)
