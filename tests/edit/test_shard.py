"""A file as a set and back; sharded and unsharded models compute the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import cortiq
from builders.cmf import header
from builders.operations import tensor
from builders.reference import reference_folder
from builders.sets import MAX_BYTES, single, whole, written_set
from builders.tiny import Tiny, tokenizer_json, write_tiny
from cortiq.container import open as open_model
from cortiq.container import open_single, verify
from cortiq.container.shard_writer import write_shards
from cortiq.convert import ConvertOptions
from cortiq.edit.diff import diff
from cortiq.edit.requant import requant
from cortiq.edit.shard import merge, shard
from cortiq.edit.story import story
from cortiq.engine.perplexity import perplexity
from cortiq.errors import Changed, HashMismatch, Parse, Shard, UsageError
from cortiq.model.loader import PlanOptions, build_plan


def test_merging_gives_back_the_bytes(tmp_path: Path) -> None:
    written = written_set(tmp_path)
    before = (tmp_path / "m.cmf").read_bytes()
    for path in written.paths:
        assert merge(path, tmp_path / "back.cmf", force=True) == tmp_path / "back.cmf"
        assert (tmp_path / "back.cmf").read_bytes() == before
    (tmp_path / "m.cmf").unlink()
    assert merge(written.paths[1]) == tmp_path / "m.cmf"
    assert (tmp_path / "m.cmf").read_bytes() == before


def test_a_set_is_dealt_out_anew(tmp_path: Path) -> None:
    written = written_set(tmp_path)
    again = shard(written.paths[2], tmp_path / "n", 2 * MAX_BYTES)
    assert len(again.paths) == 2 != len(written.paths)
    direct = shard(tmp_path / "m.cmf", tmp_path / "n", 2 * MAX_BYTES, force=True)
    assert direct.set == again.set
    assert whole(again.paths[0]) == whole(written.paths[0])


def test_progress_ends_with_everything(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    shard(single(tmp_path / "m.cmf"), None, MAX_BYTES, progress=lambda done, total: steps.append((done, total)))
    assert steps[-1][0] == steps[-1][1] > 0
    assert steps == sorted(steps)


def test_no_input_is_written_over(tmp_path: Path) -> None:
    written = written_set(tmp_path)
    before = {path: path.read_bytes() for path in written.paths}
    for action in (
        lambda: merge(written.paths[0], written.paths[1], force=True),
        lambda: shard(written.paths[0], tmp_path / "m.cmf", MAX_BYTES, force=True),
        lambda: merge(written.paths[0]),
    ):
        with pytest.raises(UsageError, match="exists"):
            action()
    assert {path: path.read_bytes() for path in written.paths} == before


def test_a_file_of_no_set_is_not_merged(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no_set"):
        merge(single(tmp_path / "m.cmf"), tmp_path / "n.cmf")


def test_damage_is_not_carried_over(tmp_path: Path) -> None:
    written = written_set(tmp_path)
    path = written.paths[1]
    with open_single(path) as file:
        at = file.envelope.data.offset + 5
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(HashMismatch) as caught:
        merge(written.paths[0], tmp_path / "n.cmf")
    assert caught.value.code == "tensor"
    assert not (tmp_path / "n.cmf").exists()


def test_a_set_is_verified_whole(tmp_path: Path) -> None:
    written = written_set(tmp_path)
    steps: list[tuple[int, int]] = []
    with open_model(written.paths[0]) as file:
        report = verify(file, strict=True, progress=lambda done, total: steps.append((done, total)))
        assert (report.problems, report.files) == ((), 4)
        assert report.checked == len(file) + 2 * 4 + 3
        assert steps[-1] == (report.bytes, report.bytes)
        assert steps == sorted(steps)
        assert verify(file, level="quick").bytes < report.bytes
    data = bytearray(written.paths[2].read_bytes())
    data[5000] ^= 1
    written.paths[2].write_bytes(data)
    with open_model(written.paths[0]) as file:
        (problem,) = verify(file).problems
        assert (problem.code, problem.path) == ("tensor", str(written.paths[2]))
        written.paths[3].write_bytes(b"")
        with pytest.raises(Changed, match=written.paths[3].name):
            verify(file)


def test_what_only_the_whole_set_can_tell(tmp_path: Path) -> None:
    """A skill in one file replaces a tensor of another with another shape."""
    specs = [tensor("w", 900), tensor("x", 900), tensor("skill.s.w", 800), tensor("skill.s.x", 900)]
    written = write_shards(tmp_path / "m", header(skills=[{"id": "s"}]), specs, 3600)
    for path in written.paths:
        with open_single(path) as file:
            assert verify(file, strict=True).problems == ()
    with open_model(written.paths[0]) as file:
        (problem,) = verify(file).problems
        assert (problem.kind, problem.tensor) == ("Parse.skill_shape", "skill.s.w")
        assert isinstance(problem, Parse)


def test_a_set_differs_in_nothing_from_its_file(tmp_path: Path) -> None:
    written = written_set(tmp_path)
    with open_model(written.paths[1]) as a, open_model(tmp_path / "m.cmf") as b:
        for found in (diff(a, b), diff(b, a)):
            assert found.equal
            assert (found.identity, found.same) == ("sha256", 7)
    single(tmp_path / "other.cmf", digests=False)
    with open_model(written.paths[1]) as a, open_model(tmp_path / "other.cmf") as b:
        assert diff(a, b).identity == "hash64"


def test_the_story_of_a_set(tmp_path: Path) -> None:
    written = written_set(tmp_path)
    with open_model(written.paths[1]) as file:
        text = " ".join(sentence for passage in story(file) for sentence in passage.sentences)
    assert "It lies in a set of 4 files." in text
    assert "Its 7 tensors" in text
    assert "Skill s replaces 2 tensors" in text


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny model and the first file of the same in at least four."""
    folder = tmp_path_factory.mktemp("models")
    path = write_tiny(folder / "m.cmf", Tiny(matrix="q8_row"), tokenizer=tokenizer_json())
    written = shard(path, None, 150_000)
    assert len(written.paths) >= 4
    return path, written.paths[-1]


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_a_set_computes_what_its_file_does(models: tuple[Path, Path], mode: str) -> None:
    logits, values = [], []
    for path in models:
        with cortiq.load(path, mode=mode, threads=1) as model:
            text = "The quick brown fox jumps over the lazy dog. " * 5
            logits.append(model.forward(model.tokenize(text)).tobytes())
            values.append(perplexity(model, text, n_ctx=32))
    assert logits[0] == logits[1]
    assert values[0] == values[1]


def test_one_file_of_a_set_does_not_run(models: tuple[Path, Path]) -> None:
    for no in (1, 2):
        with open_single(models[1].with_name(f"m-0000{no}{models[1].name[7:]}")) as file:
            with pytest.raises(Shard) as caught:
                build_plan(file, PlanOptions(threads=1))
            assert caught.value.kind == "Shard.part"


def test_a_requantized_set_is_a_file(models: tuple[Path, Path], tmp_path: Path) -> None:
    outputs = [tmp_path / "a.cmf", tmp_path / "b.cmf"]
    for source, output in zip(models, outputs, strict=True):
        requant(source, output, ConvertOptions(quant="q4_tiled"))
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    for target in (None, models[1].with_name("m-00001-of-00005.cmf")):
        with pytest.raises(UsageError):
            requant(models[1], target, ConvertOptions(quant="q4_tiled", force=True))


def test_reference_set(tmp_path: Path) -> None:
    folder = reference_folder()
    if folder is None:
        pytest.skip("shared/golden/ref is not beside this checkout")
    paths = [folder / "shards" / f"set-0000{no}-of-00004.cmf" for no in range(1, 5)]
    for path in paths:
        with open_single(path) as file:
            assert verify(file).ok
    assert {whole(path) for path in paths} == {whole(folder / "shards" / "single.cmf")}
    with open_model(paths[2]) as file, open_model(folder / "shards" / "single.cmf") as one:
        assert verify(file).problems == ()
        assert diff(file, one).equal
        assert len(file) == 42
        assert len(file.skills.entries("sql")) == 3
    # Dealt out by the same rule.
    again = shard(folder / "shards" / "single.cmf", tmp_path / "set.cmf", 400_000)
    for ours, theirs in zip(again.paths, paths, strict=True):
        with open_single(ours) as a, open_single(theirs) as b:
            assert [name for name in a if not name.startswith("cmf.digests")] == list(b)
    values = []
    for path in (paths[3], folder / "shards" / "single.cmf"):
        with cortiq.load(path, mode="exact", threads=1) as model:
            values.append(model.forward(range(16)).tobytes())
    assert values[0] == values[1]
