"""Skills added to a file and taken out of it in place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.skill_sources import GATE, NORM, UP, changed, folder, payloads, standalone
from builders.tiny import Tiny, write_tiny
from cortiq.container import (
    InPlace,
    MaskInfo,
    MaskSet,
    TensorSpec,
    encode_masks,
    grow,
    locking,
    new_mask,
    open_single,
    verify,
    write_file,
)
from cortiq.container.digest import read_digests
from cortiq.edit.compact import compact
from cortiq.edit.history import log, undo
from cortiq.edit.skills import SkillAdded, add_skill, open_skill, remove_skill
from cortiq.errors import CortiqError

DATA = Path(__file__).parents[1] / "data" / "container"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "model.cmf", Tiny(matrix="q4_tiled"), header={"skills": []})


def add(path: Path, source: Path, **options: Any) -> SkillAdded:
    with open_skill(source) as found:
        return add_skill(path, found, **options)


def cut(path: Path, output: Path, *, seed: int = 1, masked: bool = False, **options: Any) -> Path:
    """A skill file for the model at ``path``."""
    with open_single(path) as base:
        masks = None
        if masked:
            off = np.arange(base.arch.intermediate_size) % 3 > 0
            info = MaskInfo(task_id=1, name="specialist", sparsity=0.3, priority="Primary", parent=None)
            masks = MaskSet.of([new_mask(base.arch, info, ffn={0: off})], "specialist")
        return standalone(output, base, changed(base, seed=seed), masks=masks, **options)


def strict_problems(path: Path) -> set[str]:
    """What strict verifying finds beyond the dead bytes every growth leaves."""
    with open_single(path) as file:
        report = verify(file, strict=True, require_hashes=True)
        return {error.kind for error in report.problems} - {"Parse.dead_bytes"}


def test_the_golden_skill_joins_its_base(tmp_path: Path) -> None:
    path = tmp_path / "base.cmf"
    path.write_bytes((DATA / "llama-q8.cmf").read_bytes())
    before = path.read_bytes()
    done = add(path, DATA / "sql.skill.cmf")
    assert done == SkillAdded("sql", 6, 62976, False, None)
    assert path.read_bytes()[128 : len(before)] == before[128:]
    with open_single(path) as file, open_single(DATA / "grown-1.cmf") as wanted:
        assert payloads(file, "sql") == payloads(wanted, "sql")
        assert [*file][:39] == [*wanted][:39]
        assert file.skills["sql"].layers == (1, 2)
        assert file.skills["sql"].base_dir_hash is None
        assert not file.header.is_skill_file
    with open_single(path) as file:
        assert verify(file, require_hashes=True).ok


@pytest.mark.parametrize("digests", [True, False])
def test_a_skill_file_is_taken_over_byte_for_byte(path: Path, tmp_path: Path, digests: bool) -> None:
    source = cut(path, tmp_path / "sql.cmf", digests=digests, name="SQL", provenance={"corpus": "x"}, task="general")
    with open_single(path) as file:
        names = list(file)
    done = add(path, source)
    with open_single(path) as file, open_single(source) as own:
        assert payloads(file, "sql") == {n: (own.tensors[n].dtype, bytes(own[n].raw)) for n in (GATE, UP, NORM)}
        (record,) = file.header.to_dict()["skills"]
        assert record == {"id": "sql", "name": "SQL", "provenance": {"corpus": "x"}, "layers": [0, 1]}
        assert [name for name in file if name in names] == names
        assert file.resolve(GATE, "sql").name == f"skill.sql.{GATE}"
        digests_of = read_digests(file)
        assert digests_of is not None
        assert f"skill.sql.{GATE}" in digests_of.tensors
    assert done.tensors == 3
    assert strict_problems(path) == set()
    assert log(path).versions[-1].what == "skill add sql"


def test_another_id_and_a_second_skill(path: Path, tmp_path: Path) -> None:
    first, second = cut(path, tmp_path / "1.cmf"), cut(path, tmp_path / "2.cmf", seed=2)
    add(path, first, skill_id="one")
    add(path, second, skill_id="two", force=True)
    with open_single(path) as file:
        assert list(file.skills) == ["one", "two"]
        assert payloads(file, "one") != payloads(file, "two")
    assert strict_problems(path) == set()


def test_replacing_keeps_the_place_and_leaves_nothing_of_the_old(path: Path, tmp_path: Path) -> None:
    with open_single(path) as base:
        two = folder(tmp_path / "2", changed(base, (UP,), 2), {"id": "a", "quality": None})
        one = folder(tmp_path / "1", changed(base, (GATE, NORM)), {"id": "a", "name": "old"})
        other = folder(tmp_path / "3", changed(base, (NORM,)), {"id": "b"})
    add(path, one)
    add(path, other)
    before = path.read_bytes()
    with pytest.raises(CortiqError) as caught:
        add(path, two)
    assert caught.value.kind == "UsageError.skill_exists"
    assert path.read_bytes() == before
    assert add(path, two, overwrite=True).replaced
    with open_single(path) as file:
        assert list(file.skills) == ["a", "b"]
        assert file.skills["a"].name is None
        assert set(payloads(file, "a")) == {UP}
        assert set(payloads(file, "b")) == {NORM}
    assert strict_problems(path) == set()


def test_replacing_where_there_is_none_adds(path: Path, tmp_path: Path) -> None:
    assert not add(path, cut(path, tmp_path / "s.cmf"), overwrite=True).replaced


def test_removing_leaves_the_backbone(path: Path, tmp_path: Path) -> None:
    with open_single(path) as file:
        names = list(file)
    add(path, cut(path, tmp_path / "s.cmf"))
    assert remove_skill(path, "sql") == 3
    with open_single(path) as file:
        assert list(file) == names
        assert file.header.to_dict()["skills"] == []
    assert strict_problems(path) == set()
    undo(path)
    with open_single(path) as file:
        assert len(payloads(file, "sql")) == 3
    undo(path)
    with open_single(path) as file:
        assert not file.skills


def test_removing_what_is_not_there(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(CortiqError) as caught:
        remove_skill(path, "sql")
    assert caught.value.kind == "UsageError.skill"
    assert path.read_bytes() == before


def test_removing_a_skill_that_only_tensors_have(path: Path, tmp_path: Path) -> None:
    add(path, cut(path, tmp_path / "s.cmf"))
    grow(path, header=lambda fields: {**fields, "skills": []})
    assert remove_skill(path, "sql") == 3
    assert strict_problems(path) == set()


def test_compacting_after_a_removal_gives_the_bytes_back(path: Path, tmp_path: Path) -> None:
    before = path.read_bytes()
    add(path, cut(path, tmp_path / "s.cmf"))
    remove_skill(path, "sql")
    compact(path)
    assert path.read_bytes() == before


def test_the_mask_of_a_skill_comes_and_goes_with_it(path: Path, tmp_path: Path) -> None:
    source = cut(path, tmp_path / "s.cmf", masked=True, task="specialist")
    assert add(path, source).mask == "sql"
    with open_single(path) as file:
        assert file.skills["sql"].input_mask_task == "sql"
        assert file.masks is not None
        assert list(file.masks) == ["general", "sql"]
        assert file.masks.default is not None
        assert file.masks.default.is_open
        assert np.count_nonzero(~file.masks["sql"].ffn) == 32
        assert (file.masks.infos["sql"].task_id, file.masks.infos["sql"].priority) == (1, "Normal")
    assert strict_problems(path) == set()
    add(path, source, overwrite=True, force=True)
    with open_single(path) as file:
        assert file.masks is not None
        assert list(file.masks) == ["general", "sql"]
    remove_skill(path, "sql")
    with open_single(path) as file:
        assert file.masks is not None
        assert list(file.masks) == ["general"]
    assert strict_problems(path) == set()


def test_the_default_falls_back_when_its_skill_goes(path: Path, tmp_path: Path) -> None:
    source = cut(path, tmp_path / "s.cmf", masked=True)
    add(path, source)
    grow(path, masks=as_default(path, "sql"))
    add(path, source, overwrite=True, force=True)
    with open_single(path) as file:
        assert file.masks is not None
        assert file.masks.default_task == "sql"
    remove_skill(path, "sql")
    with open_single(path) as file:
        assert file.masks is not None
        assert file.masks.default_task == "general"
    assert strict_problems(path) == set()


def as_default(path: Path, name: str) -> bytes:
    """The masks section with another default."""
    with open_single(path) as file:
        assert file.masks is not None
        return encode_masks(replace(file.masks, default_task=name), file.arch)


def test_a_mask_that_others_name_stays(path: Path, tmp_path: Path) -> None:
    add(path, cut(path, tmp_path / "s.cmf", masked=True))
    with open_single(path) as base:
        add(path, folder(tmp_path / "b", changed(base, (UP,)), {"id": "b", "input_mask_task": "sql"}))
    remove_skill(path, "sql")
    with open_single(path) as file:
        assert file.masks is not None
        assert "sql" in file.masks
    assert strict_problems(path) == set()


def test_a_mask_that_is_not_the_skills_is_not_overwritten(path: Path, tmp_path: Path) -> None:
    source = cut(path, tmp_path / "s.cmf", masked=True, task="specialist")
    add(path, source)
    grow(path, header=lambda fields: {**fields, "skills": []})
    before = path.read_bytes()
    with pytest.raises(CortiqError) as caught:
        add(path, source, overwrite=True, force=True)
    assert caught.value.kind == "UsageError.mask_name"
    assert path.read_bytes() == before


def test_a_skill_for_other_weights(path: Path, tmp_path: Path) -> None:
    other = write_tiny(tmp_path / "other.cmf", Tiny(matrix="q4_tiled", seed=9))
    source, before = cut(other, tmp_path / "s.cmf"), path.read_bytes()
    with pytest.raises(CortiqError, match="--force") as caught:
        add(path, source)
    assert caught.value.kind == "BaseMismatch.base"
    assert path.read_bytes() == before
    assert add(path, source, force=True).tensors == 3


def test_a_base_that_has_grown_says_so(path: Path, tmp_path: Path) -> None:
    first, second = cut(path, tmp_path / "1.cmf"), cut(path, tmp_path / "2.cmf", id="b")
    with open_single(path) as file:
        count = len(file) - 1  # the digests are of the version
    add(path, first)
    with pytest.raises(CortiqError, match=f"has grown .* its first {count} tensors") as caught:
        add(path, second)
    assert caught.value.kind == "BaseMismatch.grown"


def test_a_changed_backbone_is_another_model(path: Path, tmp_path: Path) -> None:
    source = cut(path, tmp_path / "s.cmf")
    with open_single(path) as file:
        entry = file.tensors[NORM]
        payload = bytes(reversed(bytes(file[NORM].raw)))
    grow(path, remove=[NORM], add=[TensorSpec(NORM, entry.dtype, entry.shape, entry.nbytes, [payload])])
    with pytest.raises(CortiqError) as caught:
        add(path, source)
    assert caught.value.kind == "BaseMismatch.base"


def test_shapes_that_do_not_fit_are_told_before_a_byte_is_written(path: Path, tmp_path: Path) -> None:
    wide = write_tiny(tmp_path / "wide.cmf", Tiny(matrix="q4_tiled", width=128))
    missing = folder(tmp_path / "f", {"model.layers.7.mlp.up_proj.weight": np.zeros((96, 64), np.float32)}, {"id": "x"})
    nested = folder(tmp_path / "n", {"skill.a.model.norm.weight": np.zeros(64, np.float32)}, {"id": "x"})
    before = path.read_bytes()
    for source in (cut(wide, tmp_path / "s.cmf"), missing, nested):
        with pytest.raises(CortiqError) as caught:
            add(path, source, force=True)
        assert caught.value.kind == "Parse.skill_shape"
        assert caught.value.path == str(source)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["", "a.b", "a/b", "..", "x" * 65, "sql ", "-a", "Ａ", "a\0"])
def test_i1_ids_nobody_may_write(path: Path, tmp_path: Path, name: str) -> None:
    source = cut(path, tmp_path / "s.cmf")
    with pytest.raises(CortiqError) as caught:
        add(path, source, skill_id=name)
    assert caught.value.kind == "Parse.skill_id"


def test_bases_that_take_no_skill(path: Path, tmp_path: Path) -> None:
    source = cut(path, tmp_path / "s.cmf")
    shard = write_tiny(tmp_path / "shard.cmf", Tiny(matrix="q4_tiled"), header={"shard": {"no": 1, "count": 2}})
    other = cut(path, tmp_path / "o.cmf", id="other")
    for base, kind in ((shard, "Shard.base"), (other, "UsageError.skill_base"), (source, "UsageError.same_file")):
        with pytest.raises(CortiqError) as caught:
            add(base, source, overwrite=True)
        assert caught.value.kind == kind
    with pytest.raises(CortiqError) as caught:
        add(path, path)
    assert caught.value.kind == "UsageError.no_skill_file"


def test_a_damaged_payload_is_not_taken_over(path: Path, tmp_path: Path) -> None:
    source = cut(path, tmp_path / "s.cmf")
    with open_single(source) as file:
        at = file.envelope.data.offset + file.tensors[UP].off
    with source.open("r+b") as stream:
        stream.seek(at)
        stream.write(b"\xff\xfe\xfd")
    with open_single(path) as file:
        before = file.envelope
    with pytest.raises(CortiqError) as caught:
        add(path, source)
    assert caught.value.kind == "HashMismatch.tensor"
    with open_single(path) as file:
        assert file.envelope == before
        assert verify(file, require_hashes=True).ok


def test_content_that_cannot_be_decoded_is_not_taken_over(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "model.cmf", Tiny(matrix="vbit_ro"))
    source = cut(path, tmp_path / "s.cmf", digests=False)
    with open_single(source) as file:
        kept = {name: (file.tensors[name], bytearray(file[name].raw)) for name in file}
        fields = file.header.to_dict()
    kept[UP][1][0] = 7  # no width a row can have
    write_file(source, fields, [TensorSpec(n, e.dtype, e.shape, e.nbytes, [b]) for n, (e, b) in kept.items()])
    before = path.read_bytes()
    with pytest.raises(CortiqError) as caught:
        add(path, source)
    assert (caught.value.kind, caught.value.tensor) == ("Parse.vbit_bits", UP)
    assert path.read_bytes() == before


def test_what_is_decided_is_decided_about_the_locked_file(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A skill of the same id comes between looking at the file and locking it."""
    first, second = cut(path, tmp_path / "1.cmf"), cut(path, tmp_path / "2.cmf", seed=2)
    real, done = locking._lock, []

    def lock(fd: int, at: Path, *, wait: bool) -> None:
        if not done:
            done.append(fd)
            add(path, first)
        real(fd, at, wait=wait)

    monkeypatch.setattr(locking, "_lock", lock)
    with pytest.raises(CortiqError) as caught:
        add(path, second)
    assert caught.value.kind == "UsageError.skill_exists"


def test_links_are_refused_and_allowed(path: Path, tmp_path: Path) -> None:
    source, link = cut(path, tmp_path / "s.cmf"), tmp_path / "link.cmf"
    link.symlink_to(path)
    with pytest.raises(CortiqError) as caught:
        add(link, source)
    assert caught.value.kind == "UsageError.symlink"
    add(link, source, allowed=InPlace(anyway=True))
    with open_single(path) as file:
        assert "sql" in file.skills
