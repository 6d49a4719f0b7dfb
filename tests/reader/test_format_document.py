"""``docs/format.md`` says what the reader does and what the layouts are."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

import cmf_reader
from builders.hexdump import hexdump
from builders.reference import ROOT, two_tensors
from cortiq.container.envelope import SECTIONS
from cortiq.container.features import Feature
from cortiq.layouts import LAYOUTS

TEXT = (ROOT / "docs" / "format.md").read_text()
DTYPE_ROWS = re.findall(r"^\| (\d+) \| `(\w+)` \| [^|]* \| (at least )?`([^`]+)` \|$", TEXT, re.M)


def test_the_dump_is_the_file_and_reads_as_the_page_says(tmp_path: Path) -> None:
    made = two_tensors()
    (dump,) = re.findall(r"^```\n(000000 .*?)\n```$", TEXT, re.M | re.S)
    assert dump == hexdump(bytes(made.data))
    file = cmf_reader.CmfFile(made.save(tmp_path / "toy.cmf"))
    assert cmf_reader.verify(file) == []
    matrix = file.tensors["model.embed_tokens.weight"].array()
    assert matrix[0, :4].tolist() == [-4, -4, -3.5, -4]
    assert matrix[1].tolist() == [0] * 30 + [2, -1.75]
    assert file.tensors["model.norm.weight"].array().tolist() == [1, 0.5, -2, 65504]
    assert f"hash `{file.tensors['model.embed_tokens.weight'].hash:016x}`" in TEXT


def test_every_dtype_has_a_row() -> None:
    assert {int(number): name for number, name, *_ in DTYPE_ROWS} == {i: entry.name for i, entry in LAYOUTS.items()}
    assert {i: entry.name for i, entry in LAYOUTS.items()} == cmf_reader.DTYPES


@pytest.mark.parametrize("shape", [(6, 64), (1, 32), (7, 352)])
@pytest.mark.parametrize(("number", "name", "variable", "formula"), DTYPE_ROWS, ids=lambda v: v if v.isalnum() else "")
def test_sizes(number: str, name: str, variable: str, formula: str, shape: tuple[int, int]) -> None:
    n = math.prod(shape)
    known = {"n": n, "groups": -(-n // 32), "rows": shape[0], "cols": shape[1]}
    entry = LAYOUTS[int(number)]
    assert eval(formula, known) == entry.payload_nbytes(shape)
    assert bool(variable) != entry.exact_size


def test_every_refusal_of_the_reader_is_listed() -> None:
    source = Path(cmf_reader.__file__).read_text()
    raised = set(re.findall(r'"((?:InvalidMagic|Unsupported\w+|Bounds|Parse|Limit|Shard|BaseMismatch)\.\w+)"', source))
    assert len(raised) > 60
    assert not {what for what in raised if f"`{what}`" not in TEXT}


def test_names_of_sections_and_features_are_there() -> None:
    assert not [feature for feature in Feature if f"`{feature.name}`" not in TEXT]
    assert not [name for name in SECTIONS if not re.search(rf"\b{name}\b", TEXT)]


def test_vectors_of_hash64() -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| `([0-9a-f]{16})` \|$", TEXT, re.M))
    data = {"nothing": b"", "one zero byte": b"\0", "`CMF`": b"CMF", "bytes 0 to 255": np.arange(256, dtype=np.uint8)}
    assert {name: f"{cmf_reader.hash64(bytes(content)):016x}" for name, content in data.items()} == rows
