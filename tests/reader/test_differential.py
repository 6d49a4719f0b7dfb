"""The stand-alone reader against the package and against what the reference implementation recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cmf_reader
from builders.cmf import Q4TP, Cmf, T, header, two_layers
from builders.mutant_values import ARCH_FIELDS, FIELDS, VALUES
from builders.mutants import DAMAGES, Damage, damage_masks, damage_payload, damage_skills, mutants
from builders.reference import every_dtype, recorded, reference_files, reference_folder, unpacked
from builders.weights import heavy_tailed
from cortiq.container import File, TensorSpec, open_single, write_file
from cortiq.errors import CortiqError
from cortiq.layouts import LAYOUTS

EACH = 120  # mutants of each kind of damage
SECTIONS = [name for name in ("masks", "sparse_index", "skills") if hasattr(File, name)]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def said(call: Callable[[], object]) -> str:
    """``ok``, or class and code of the refusal."""
    try:
        call()
    except CortiqError as error:
        return error.kind
    except cmf_reader.CmfError as error:
        return f"{error.kind}.{error.code}"
    return "ok"


def open_with_package(path: Path) -> None:
    with open_single(path) as file:
        for name in SECTIONS:
            getattr(file, name)


def open_with_reader(path: Path) -> None:
    file = cmf_reader.CmfFile(path)
    if "masks" in SECTIONS:
        file.masks()
    if "sparse_index" in SECTIONS:
        file.index()


@pytest.mark.parametrize("source", reference_files(), ids=lambda path: path.name)
def test_reference_file(source: Path, tmp_path: Path) -> None:
    path = unpacked(source, tmp_path)
    read = cmf_reader.CmfFile(path)
    assert cmf_reader.verify(read) == []
    expected = recorded(path)
    with open_single(path) as file:
        assert list(read.tensors) == list(file)
        assert read.section("vocab") == (file.tokenizer_json or b"")
        for name, tensor in read.tensors.items():
            theirs = file[name]
            assert (tensor.dtype, tensor.shape, tensor.payload()) == (theirs.dtype, theirs.shape, bytes(theirs.raw))
            values = tensor.array()
            if name in expected:
                assert values.tobytes() == expected[name].tobytes(), name
            layout = LAYOUTS[theirs.entry.dtype]
            if layout.name != "u8":
                assert same_bits(values, layout.decode(theirs.raw, theirs.shape)), name


def test_all_reference_files_are_here() -> None:
    if reference_folder() is None:
        pytest.skip("shared/golden/ref is not beside this checkout; the copies in tests/data were read")
    assert len(reference_files()) > 80


def test_what_the_package_writes(tmp_path: Path) -> None:
    values = heavy_tailed(8, 64)
    kinds = [layout for layout in LAYOUTS.values() if layout.name != "u8"]
    payloads = {layout.name: layout.encode(values) for layout in kinds}
    specs = [
        TensorSpec(name=entry.name, dtype=entry.id, shape=values.shape, nbytes=len(data), chunks=[data])
        for entry, data in zip(kinds, payloads.values(), strict=True)
    ]
    path = tmp_path / "written.cmf"
    write_file(path, header(), specs, vocab=b'{"model": {}}')
    file = cmf_reader.CmfFile(path)
    assert cmf_reader.verify(file) == []
    assert ("digests" in file.header) == bool(file.digests())
    for entry in kinds:
        assert same_bits(file.tensor(entry.name).array(), entry.decode(payloads[entry.name], values.shape)), entry.name


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_mutants_are_judged_alike(damage: Damage, tmp_path: Path) -> None:
    path, seen = tmp_path / "mutant.cmf", set()
    for i, mutant in enumerate(mutants(bytes(two_layers().data), damage, EACH)):
        path.write_bytes(mutant)
        package, reader = said(lambda: open_with_package(path)), said(lambda: open_with_reader(path))
        assert reader == package, f"mutant {i} of {damage.__name__}"
        seen.add(package)
    assert "ok" in seen
    assert len(seen) > 2


@pytest.mark.parametrize("place", ["header", "arch"])
def test_every_key_with_every_value_is_judged_alike(place: str, tmp_path: Path) -> None:
    file, path = two_layers(), tmp_path / "mutant.cmf"
    keys = FIELDS if place == "header" else sorted({*file.header["arch"], *ARCH_FIELDS})
    for key in keys:
        for value in VALUES:
            made = file.with_header(**{key: value}) if place == "header" else file.with_arch(**{key: value})
            made.save(path)
            package, reader = said(lambda: open_with_package(path)), said(lambda: open_with_reader(path))
            assert reader == package, f"{key} is {value!r}"


@pytest.mark.parametrize(("damage", "section"), [(damage_masks, "masks"), (damage_skills, "skills")])
def test_mutants_of_sections_are_judged_alike(damage: Damage, section: str, tmp_path: Path) -> None:
    """As far as the package reads the section; the reader always does."""
    path, seen = tmp_path / "mutant.cmf", set()
    for i, mutant in enumerate(mutants(bytes(two_layers().data), damage, EACH)):
        path.write_bytes(mutant)
        reader = said(lambda: cmf_reader.CmfFile(path).masks())
        seen.add(reader)
        if section in SECTIONS:
            assert reader == said(lambda: open_with_package(path)), f"mutant {i} of {damage.__name__}"
    assert "ok" in seen
    assert len(seen) > 4


def test_contents_are_judged_alike(tmp_path: Path) -> None:
    path, seen = tmp_path / "mutant.cmf", set()
    for i, mutant in enumerate(mutants(bytes(every_dtype().data), damage_payload, 200)):
        path.write_bytes(mutant)
        read = cmf_reader.CmfFile(path)
        with open_single(path) as file:
            for name, tensor in read.tensors.items():
                package, reader = said(file[name].validate), said(tensor.array)
                assert reader == package, f"{name} of mutant {i}"
                seen.add(package)
    assert len(seen) >= 8, seen


def test_every_half_float_as_a_step_of_a_ladder(tmp_path: Path) -> None:
    """2^x is the only function in a decoder; every argument it can get gives the same float."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    exponents = halves[np.isfinite(halves) & (np.abs(halves.astype(np.float32)) <= 126)]
    rows = len(exponents)
    weights = np.full((rows, 16), 0x99, np.uint8)
    params = np.stack([exponents, np.zeros_like(exponents)], 1)
    payload = weights.tobytes() + params.tobytes() + bytes(rows)
    file = Cmf(two_layers().header, []).with_tensors(T("t", Q4TP, (rows, 32), payload)).save(tmp_path / "t.cmf")
    values = cmf_reader.CmfFile(file).tensors["t"].array()[:, 0].astype(np.float64)
    assert np.abs(values / np.exp2(exponents.astype(np.float64)) - 1).max() < 2.0**-23
    assert same_bits(values.astype(np.float32), LAYOUTS[Q4TP].decode(payload, (rows, 32))[:, 0].copy())
