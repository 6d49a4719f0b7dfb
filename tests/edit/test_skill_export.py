"""A skill of a file as a file of its own, and back."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from builders.skill_sources import GATE, changed, folder, payloads, standalone
from builders.tiny import Tiny, write_tiny
from cortiq.container import MaskInfo, MaskSet, grow, new_mask, open_single, skill_file, verify
from cortiq.container.digest import covered
from cortiq.container.skill_file import dir_key
from cortiq.edit.compact import compact
from cortiq.edit.skill_export import export_skill
from cortiq.edit.skills import add_skill, open_skill
from cortiq.errors import CortiqError

DATA = Path(__file__).parents[1] / "data" / "container"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "model.cmf", Tiny(matrix="q4_tiled"))


def add(path: Path, source: Path, **options: bool) -> None:
    with open_skill(source) as found:
        add_skill(path, found, **options)


def test_there_and_back(path: Path, tmp_path: Path) -> None:
    base = Path(shutil.copyfile(path, tmp_path / "base.cmf"))
    with open_single(path) as file:
        first = folder(tmp_path / "1", changed(file, (GATE,)), {"id": "other"})
        source = folder(tmp_path / "2", changed(file), {"id": "sql", "name": "SQL", "provenance": {"corpus": "x"}})
    add(path, first)
    add(path, source)
    output = tmp_path / "sql.cmf"
    done = export_skill(path, "sql", output)
    with open_single(output) as file, open_single(base) as before, open_single(path) as grown:
        assert verify(file, strict=True, require_hashes=True).ok
        bound = skill_file(file)
        assert bound.base_dir_hash == done.base_dir_hash == dir_key(before)
        assert (bound.skill.name, bound.skill.base_arch, bound.skill.task) == ("SQL", "tiny", "general")
        assert bound.skill.provenance == {"corpus": "x"}
        assert file.tokenizer_json is None
        wanted = payloads(grown, "sql")
        assert {name: (file.tensors[name].dtype, bytes(file[name].raw)) for name in covered(file)} == wanted
    add(base, output)
    with open_single(base) as file:
        assert payloads(file, "sql") == wanted


def test_the_mask_travels(path: Path, tmp_path: Path) -> None:
    base = Path(shutil.copyfile(path, tmp_path / "base.cmf"))
    with open_single(path) as file:
        gates = [True, False]
        info = MaskInfo(task_id=0, name="m", sparsity=0.5, priority="Normal")
        masks = MaskSet.of([new_mask(file.arch, info, gates=np.array(gates))], "m")
        source = standalone(tmp_path / "s.cmf", file, changed(file), masks=masks, task="m")
    add(path, source)
    export_skill(path, "sql", tmp_path / "out.cmf")
    add(base, tmp_path / "out.cmf")
    for at in (path, base):
        with open_single(at) as file:
            assert file.masks is not None
            assert file.masks["sql"].gates.tolist() == gates
            assert file.skills["sql"].input_mask_task == "sql"


def test_a_golden_swarm_names_its_base(tmp_path: Path) -> None:
    """Another writer's file has no history: the base must be given, and be its backbone."""
    output = tmp_path / "out.cmf"
    with pytest.raises(CortiqError, match="--base") as caught:
        export_skill(DATA / "grown-1.cmf", "sql", output)
    assert caught.value.kind == "UsageError.base"
    done = export_skill(DATA / "grown-1.cmf", "sql", output, base=DATA / "llama-q8.cmf")
    assert done.base_dir_hash == 0xD75C93192D295A47
    with open_single(output) as file:
        assert skill_file(file).skill.quality is not None
    other = write_tiny(tmp_path / "tiny.cmf")
    with pytest.raises(CortiqError) as caught:
        export_skill(DATA / "grown-1.cmf", "sql", output, base=other, force=True)
    assert caught.value.kind == "BaseMismatch.base"


def test_a_compacted_file_has_forgotten(path: Path, tmp_path: Path) -> None:
    with open_single(path) as file:
        source = folder(tmp_path / "1", changed(file), {"id": "a"})
    add(path, source)
    compact(path)
    with pytest.raises(CortiqError) as caught:
        export_skill(path, "a", tmp_path / "out.cmf")
    assert caught.value.kind == "UsageError.base"
    assert not (tmp_path / "out.cmf").exists()


def test_refusals(path: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.cmf"
    grow(path, header=lambda fields: {**fields, "skills": [{"id": "empty"}, {"id": "odd id"}]})
    for name, kind in (("none", "UsageError.skill"), ("empty", "UsageError.skill_empty"), ("odd id", "Parse.skill_id")):
        with pytest.raises(CortiqError) as caught:
            export_skill(path, name, output)
        assert caught.value.kind == kind
    assert not output.exists()


def test_a_model_is_not_overwritten_by_its_skill(path: Path, tmp_path: Path) -> None:
    base = Path(shutil.copyfile(path, tmp_path / "base.cmf"))
    with open_single(path) as file:
        source = folder(tmp_path / "1", changed(file), {"id": "a"})
    add(path, source)
    for output in (path, base):
        before = output.read_bytes()
        with pytest.raises(CortiqError) as caught:
            export_skill(path, "a", output, base=base, force=True)
        assert caught.value.kind == "UsageError.exists"
        assert output.read_bytes() == before
