"""A skill cut out of a specialist and applied to its base gives the specialist."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from builders.skill_sources import GATE, NORM, UP, changed, standalone
from builders.tiny import Tiny, write_tiny
from cortiq.container import (
    File,
    MaskInfo,
    MaskSet,
    TensorSpec,
    encode_masks,
    grow,
    new_mask,
    open_single,
    verify,
    write_file,
)
from cortiq.container.digest import covered
from cortiq.edit.skill_apply import apply_skill
from cortiq.edit.skill_export import export_skill
from cortiq.errors import CortiqError
from cortiq.layouts import layout

DATA = Path(__file__).parents[1] / "data" / "container"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "base.cmf", Tiny(matrix="q4_tiled"))


def contents(file: File) -> list[tuple[object, ...]]:
    entries = [file.tensors[name] for name in covered(file)]
    return [(e.name, e.dtype, e.shape, bytes(file[e.name].raw)) for e in entries]


def specialist(path: Path, base: Path, *, masks: bool = False, extra: bool = False) -> Path:
    """Other weights, in places another dtype, other provenance; the tokenizer is that of the base."""
    with open_single(base) as file:
        values = changed(file, (GATE, UP, NORM))
        dtypes = {GATE: "q8_row", UP: "q4_tiled", NORM: "f16"}
        specs = []
        for name in covered(file):
            entry = file.tensors[name]
            if name not in values:
                specs.append(TensorSpec(name, entry.dtype, entry.shape, entry.nbytes, [bytes(file[name].raw)]))
                continue
            kind = layout(dtypes[name])
            payload = kind.encode(values[name])
            specs.append(TensorSpec(name, kind.id, entry.shape, len(payload), [payload]))
        if extra:
            specs.append(TensorSpec("model.extra", 6, (3,), 3, [b"abc"]))
        section = None
        if masks:
            info = MaskInfo(task_id=1, name="sql", sparsity=0.5, priority="Normal")
            mask = new_mask(file.arch, info, gates=np.array([True] * (file.arch.num_layers - 1) + [False]))
            section = encode_masks(MaskSet.of([mask], "sql"), file.arch)
        fields = {**file.header.to_dict(), "provenance": {"corpus": "sql"}, "notes": [1, 2]}
        fields.pop("section_hashes", None)
        write_file(path, fields, specs, masks=section, vocab=file.tokenizer_json)
    return path


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("extra", [False, True])
def test_the_specialist_again_byte_for_byte(base: Path, tmp_path: Path, masks: bool, extra: bool) -> None:
    wanted = specialist(tmp_path / "specialist.cmf", base, masks=masks, extra=extra)
    skill, output = tmp_path / "sql.skill.cmf", tmp_path / "again.cmf"
    done = export_skill(wanted, "sql", skill, base=base)
    assert done.tensors == 3 + extra
    assert skill.stat().st_size < wanted.stat().st_size
    with open_single(skill) as file:
        assert verify(file, strict=True, require_hashes=True).ok
    applied = apply_skill(base, skill, output)
    assert (applied.replaced, applied.added) == (3, int(extra))
    assert output.read_bytes() == wanted.read_bytes()


def test_a_skill_of_the_reference(tmp_path: Path) -> None:
    output = tmp_path / "out.cmf"
    apply_skill(DATA / "llama-q8.cmf", DATA / "sql.skill.cmf", output)
    base, skill = (open_single(DATA / name) for name in ("llama-q8.cmf", "sql.skill.cmf"))
    with base, skill, open_single(output) as made:
        assert covered(made) == covered(base)
        for name, entry in made.tensors.items():
            if name in covered(made):
                source = skill if name in skill else base
                assert (entry.dtype, entry.shape) == (source.tensors[name].dtype, source.tensors[name].shape)
                assert bytes(made[name].raw) == bytes(source[name].raw)
        assert made.tokenizer_json == base.tokenizer_json
        assert made.header["provenance"] == skill.header["provenance"]
        assert not made.header.is_skill_file
        assert not made.skills.ids
        assert verify(made, strict=True, require_hashes=True).ok


def test_the_skills_and_masks_of_the_base_stay(base: Path, tmp_path: Path) -> None:
    with open_single(base) as file:
        info = MaskInfo(task_id=1, name="code", sparsity=0.0, priority="Normal")
        masks = encode_masks(MaskSet.of([new_mask(file.arch, info)], "code"), file.arch)
        entry, payload = file.tensors[NORM], bytes(file[NORM].raw)
    own = TensorSpec(f"skill.poem.{NORM}", entry.dtype, entry.shape, entry.nbytes, [payload])
    grow(base, add=[own], header=lambda fields: {**fields, "skills": [{"id": "poem"}]}, masks=masks)
    with open_single(base) as file:
        skill = standalone(tmp_path / "sql.skill.cmf", file, changed(file, (GATE,)))
    output = tmp_path / "out.cmf"
    apply_skill(base, skill, output)
    with open_single(output) as made:
        assert list(made.skills.ids) == ["poem"]
        assert made.masks is not None
        assert list(made.masks) == ["code"]
        assert verify(made, strict=True).ok


def test_another_base_needs_force(base: Path, tmp_path: Path) -> None:
    with open_single(base) as file:
        skill = standalone(tmp_path / "sql.skill.cmf", file, changed(file, (GATE,)))
    grow(base, header=lambda fields: {**fields, "notes": 1})
    other = write_tiny(tmp_path / "other.cmf", Tiny(matrix="q8_row"))
    output = tmp_path / "out.cmf"
    apply_skill(base, skill, output)  # the directory is the same
    with pytest.raises(CortiqError, match="--force") as caught:
        apply_skill(other, skill, tmp_path / "none.cmf")
    assert caught.value.kind == "BaseMismatch.base"
    assert not (tmp_path / "none.cmf").exists()
    apply_skill(other, skill, tmp_path / "forced.cmf", force=True)
    with open_single(tmp_path / "forced.cmf") as file, open_single(skill) as source:
        assert bytes(file[GATE].raw) == bytes(source[GATE].raw)


def test_an_output_is_not_lost(base: Path, tmp_path: Path) -> None:
    with open_single(base) as file:
        skill = standalone(tmp_path / "sql.skill.cmf", file, changed(file, (GATE,)))
    output = tmp_path / "out.cmf"
    output.write_text("mine")
    for target, options in ((output, {}), (base, {"overwrite": True}), (skill, {"overwrite": True})):
        before = target.read_bytes()
        with pytest.raises(CortiqError, match=r"UsageError\.exists"):
            apply_skill(base, skill, target, **options)
        assert target.read_bytes() == before
    apply_skill(base, skill, output, overwrite=True)
    with open_single(output) as file:
        assert verify(file).ok


def test_what_is_no_skill_file(base: Path, tmp_path: Path) -> None:
    other = write_tiny(tmp_path / "other.cmf", Tiny(matrix="q8_row"))
    with pytest.raises(CortiqError, match=r"UsageError\.no_skill_file"):
        apply_skill(base, other, tmp_path / "out.cmf")


@pytest.mark.parametrize("kind", ["fewer tensors", "another tokenizer", "skills"])
def test_a_difference_that_a_skill_cannot_hold(base: Path, tmp_path: Path, kind: str) -> None:
    other = tmp_path / "other.cmf"
    with open_single(base) as file:
        names = covered(file)[1:] if kind == "fewer tensors" else covered(file)
        specs = [
            TensorSpec(e.name, e.dtype, e.shape, e.nbytes, [bytes(file[e.name].raw)])
            for e in (file.tensors[name] for name in names)
        ]
        fields = file.header.to_dict()
        if kind == "skills":
            fields["skills"] = [{"id": "poem"}]
        vocab = json.dumps({"a": 1}).encode() if kind == "another tokenizer" else file.tokenizer_json
        write_file(other, fields, specs, vocab=vocab)
    with pytest.raises(CortiqError, match=r"UsageError\.skill_delta"):
        export_skill(other, "sql", tmp_path / "sql.skill.cmf", base=base)
    assert not (tmp_path / "sql.skill.cmf").exists()
    with pytest.raises(CortiqError, match=r"UsageError\.skill_empty"):
        export_skill(base, "sql", tmp_path / "sql.skill.cmf", base=base)
