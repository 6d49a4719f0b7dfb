"""Folders with skills: records, arrays, safetensors, and the dtype their weights get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from builders.skill_sources import GATE, NORM, UP, changed, folder, payloads
from builders.tiny import Tiny, weights_of, write_tiny
from cortiq.container import TensorSpec, grow, open_single, verify
from cortiq.edit.skill_folder import FolderSkill
from cortiq.edit.skills import add_skill
from cortiq.errors import CortiqError
from cortiq.layouts import LAYOUTS, layout

RECORD = {"id": "a", "name": "A", "layers": [1], "defrag": {"kept": 3}}


def add(path: Path, source: Path, **options: Any) -> None:
    with FolderSkill(source) as found:
        add_skill(path, found, **options)


def refused(path: Path, source: Path) -> CortiqError:
    """The error of adding ``source``; the file is as before."""
    before = path.read_bytes()
    with pytest.raises(CortiqError) as caught:
        add(path, source)
    assert path.read_bytes()[128 : len(before)] == before[128:]
    with open_single(path) as file:
        assert not file.skills
    return caught.value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "model.cmf", Tiny(matrix="q8_row"))


@pytest.mark.parametrize("name", [kind.name for kind in LAYOUTS.values() if kind.name != "u8"])
def test_weights_get_the_dtype_of_what_they_replace(name: str, tmp_path: Path) -> None:
    weights = {key: value for key, value in weights_of(Tiny()).items() if key in (GATE, UP, NORM)}
    path = write_tiny(tmp_path / "model.cmf", Tiny(matrix=name), weights=weights)
    with open_single(path) as base:
        other = changed(base)
    add(path, folder(tmp_path / "s", other, RECORD))
    with open_single(path) as file:
        found = payloads(file, "a")
        kind = layout(name)
        assert {key: dtype for key, (dtype, _) in found.items()} == {GATE: kind.id, UP: kind.id, NORM: layout("f16").id}
        assert file.header.to_dict()["skills"] == [RECORD]
        assert verify(file, require_hashes=True).ok
        if kind.name not in ("vbit", "vbit_ro"):  # their widths are settled together
            assert found[GATE][1] == kind.encode(other[GATE])
        restored = file[f"skill.a.{GATE}"].numpy() if name in ("f32", "f16") else kind.decode(found[GATE][1], (96, 64))
        assert np.abs(restored - other[GATE]).max() <= np.abs(other[GATE]).max()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_arrays_of_any_float(dtype: str, path: Path, tmp_path: Path) -> None:
    with open_single(path) as base:
        other = changed(base)
    given = {name: np.asfortranarray(values.astype(dtype)) for name, values in other.items()}
    add(path, folder(tmp_path / "s", given, RECORD))
    with open_single(path) as file:
        assert payloads(file, "a")[UP][1] == layout("q8_row").encode(other[UP])


def test_safetensors(path: Path, tmp_path: Path) -> None:
    with open_single(path) as base:
        other = changed(base)
    made = folder(tmp_path / "s", {NORM: other[NORM]}, {"id": "a"})
    save_file({GATE: other[GATE], UP: other[UP].astype(np.float16)}, made / "model.safetensors")
    add(path, made)
    with open_single(path) as file:
        found = payloads(file, "a")
        assert set(found) == {NORM, GATE, UP}
        assert found[UP][1] == layout("q8_row").encode(other[UP])
        assert file.skills["a"].layers == (0, 1)


def test_no_record_needs_an_id(path: Path, tmp_path: Path) -> None:
    made = folder(tmp_path / "s", {NORM: np.ones(64, np.float32)})
    assert refused(path, made).kind == "UsageError.skill_id"
    add(path, made, skill_id="named")
    with open_single(path) as file:
        assert file.header.to_dict()["skills"] == [{"id": "named", "layers": []}]


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        ("[]", "SourceError.json"),
        ("{", "SourceError.json"),
        ('{"id": 1}', "SourceError.skill_record"),
        ('{"id": "a", "base_dir_hash": "00"}', "SourceError.skill_record"),
        ('{"id": "a.b"}', "Parse.skill_id"),
        ('{"id": "a", "selection": {"metric": "mse", "phi_layer": 1, "mean": "AAA=", "basis": ""}}', "Parse.selection"),
        ('{"id": "a", "name": 5}', "Parse.skill"),
    ],
)
def test_records_that_are_none(record: str, kind: str, path: Path, tmp_path: Path) -> None:
    made = folder(tmp_path / "s", {NORM: np.ones(64, np.float32)})
    (made / "skill.json").write_text(record)
    assert refused(path, made).kind == kind


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.ones(64, np.int32), "SourceError.dtype"),
        (np.ones(64, np.bool_), "SourceError.dtype"),
        (np.ones(64, ">f4"), "SourceError.dtype"),
        (np.array([{}] * 64), "SourceError.npy"),
        (np.ones(0, np.float32), "SourceError.shape"),
        (np.full(64, np.nan, np.float32), "NonFinite"),
        (np.full(64, 1e300), "NonFinite"),
        (np.full(64, 1e6, np.float32), "NonFinite"),  # a vector of f16
    ],
)
def test_weights_that_are_none(values: Any, kind: str, path: Path, tmp_path: Path) -> None:
    error = refused(path, folder(tmp_path / "s", {NORM: values}, RECORD))
    assert error.kind.startswith(kind)
    assert error.tensor is not None or error.path is not None


def test_files_that_are_none(path: Path, tmp_path: Path) -> None:
    made = folder(tmp_path / "s", {NORM: np.ones(64, np.float32)}, RECORD)
    file = made / "tensors" / f"{NORM}.npy"
    whole = file.read_bytes()
    for damaged in (b"", whole[:100], whole[:-4], b"PK\3\4" + whole, whole.replace(b"(64,)", b"(-4,)")):
        file.write_bytes(damaged)
        assert refused(path, made).kind == "SourceError.npy"
    file.write_bytes(whole)
    save_file({NORM: np.ones(64, np.float32)}, made / "x.safetensors")
    assert refused(path, made).kind == "SourceError.duplicate"
    file.unlink()
    save_file({NORM: np.ones((4, 4, 4), np.float32)}, made / "x.safetensors")
    assert refused(path, made).kind == "SourceError.shape"
    (made / "x.safetensors").write_bytes(b"x" * 20)
    assert refused(path, made).kind == "SourceError.safetensors"
    (made / "x.safetensors").unlink()
    assert refused(path, made).kind == "SourceError.no_tensors"


def test_bytes_are_not_replaced_by_weights(path: Path, tmp_path: Path) -> None:
    grow(path, add=[TensorSpec("blob", 6, (64,), 64, [bytes(64)])])
    assert refused(path, folder(tmp_path / "s", {"blob": np.ones(64, np.float32)}, RECORD)).kind == "Parse.u8"


def test_threads_do_not_change_the_bytes(path: Path, tmp_path: Path) -> None:
    twin = tmp_path / "twin.cmf"
    twin.write_bytes(path.read_bytes())
    with open_single(path) as base:
        made = folder(tmp_path / "s", changed(base), RECORD)
    for at, threads in ((path, 1), (twin, 3)):
        with FolderSkill(made, threads=threads) as source:
            add_skill(at, source)
    with open_single(path) as one, open_single(twin) as two:
        assert payloads(one, "a") == payloads(two, "a")


def test_the_record_is_json(tmp_path: Path) -> None:
    made = folder(tmp_path / "s", {NORM: np.ones(64, np.float32)}, RECORD)
    with FolderSkill(made) as source:
        assert source.record == json.loads((made / "skill.json").read_text())
        assert source.shapes == {NORM: (64,)}
        assert source.notes == ()
