"""What a file tells of itself."""

from __future__ import annotations

import shutil
from pathlib import Path

from builders.cmf import F16, U8, Cmf, T, header, two_layers
from cortiq.container import TensorSpec, open_single, write_file
from cortiq.edit.story import story

DATA = Path(__file__).parents[1] / "data" / "container"


def told(path: Path) -> dict[str, str]:
    with open_single(path) as file:
        return {passage.heading: " ".join(passage.sentences) for passage in story(file)}


def built(folder: Path, **fields: object) -> dict[str, str]:
    return told(Cmf(header(**fields), [T("a", F16, (4,), bytes(8))]).build().save(folder / "x.cmf"))


def test_a_file_of_the_reference() -> None:
    text = told(DATA / "llama-q8.cmf")
    assert text["model"].startswith("This is a llama model of ")
    assert "4 FullAttention" in text["model"]
    assert "made by cortiq convert from" in text["origin"]
    assert "39 tensors" in text["weights"]
    assert "q8_row" in text["weights"]
    assert "carries its tokenizer" in text["text"]
    assert "no SHA-256 digests" in text["proof"]
    assert "not signed" in text["proof"]
    assert "skills" not in text


def test_origin_unknown_is_said(tmp_path: Path) -> None:
    assert built(tmp_path)["origin"] == "Where it comes from is unknown: the file does not say."
    text = built(tmp_path, provenance={"source_model": "org/model", "note": {"by": "me", "when": None}})["origin"]
    assert text.startswith("What made it is unknown from org/model.")
    assert "note by me, when unknown" in text


def test_origin_in_full(tmp_path: Path) -> None:
    origin = {
        "tool": "cortiq convert",
        "source_model": "org/model",
        "source_format": "safetensors",
        "revision": "abc",
        "options": {"quant": "q4_tiled", "encoder": "best"},
        "defrag": {"pre_intermediate": 160, "post_intermediate_max": 95},
        "moe_defrag": {"num_experts_pre": 8, "cover": 0.7},
    }
    text = built(tmp_path, provenance=origin)["origin"]
    for part in (
        "made by cortiq convert from org/model (safetensors)",
        "revision of that source is abc",
        "options were quant q4_tiled, encoder best",
        "of 160 in a layer at most 95 are left",
        "of 8 in a layer those are left that took 0.7",
    ):
        assert part in text
    assert "also states" not in text


def test_skills(tmp_path: Path) -> None:
    skills = [{"id": "sql", "name": "SQL", "quality": {"ppl": 7.5}}, {"id": "poem", "quality": None}]
    tensors = [T("a", F16, (4,), bytes(8)), T("skill.sql.a", F16, (4,), bytes(8))]
    text = told(Cmf(header(skills=skills), tensors).build().save(tmp_path / "x.cmf"))["skills"]
    assert "Skill sql, called SQL replaces 1 tensors (8 bytes); its quality was measured: ppl 7.5." in text
    assert "Skill poem replaces 0 tensors (0 bytes); its quality is unmeasured." in text


def test_a_skill_of_its_own() -> None:
    text = told(DATA / "loop.skill.cmf")
    assert "skill on its own" in text["model"]
    assert "belongs to the base with directory hash" in text["skills"]
    assert "task masks" in text["weights"]


def test_one_file_of_a_set() -> None:
    assert "file 4 of a set of 4" in told(DATA / "set-00004-of-00004.cmf")["model"]


def test_proof(tmp_path: Path) -> None:
    write_file(tmp_path / "x.cmf", header(), [TensorSpec("t", U8, (4,), 4, [b"abcd"])])
    assert "SHA-256 digests of every tensor are inside" in told(tmp_path / "x.cmf")["proof"]
    assert "Its 1 tensors are stored in 4 bytes" in told(tmp_path / "x.cmf")["weights"]
    shutil.copyfile(DATA / "signed.cmf", tmp_path / "s.cmf")
    shutil.copyfile(DATA / "signed.cmf.sig", tmp_path / "s.cmf.sig")
    assert "A signature lies beside it" in told(tmp_path / "s.cmf")["proof"]
    bare = two_layers().set("header_hash", 0).save(tmp_path / "bare.cmf")
    assert "Nothing vouches for header" in told(bare)["proof"]


def test_nothing_in_it(tmp_path: Path) -> None:
    text = told(Cmf(header(), []).build().save(tmp_path / "x.cmf"))
    assert text["weights"] == "It holds no tensors."
    assert "no tokenizer" in text["text"]


def test_long_values_are_cut(tmp_path: Path) -> None:
    text = built(tmp_path, provenance={"tool": "x" * 5000, "more": ["y" * 5000]})["origin"]
    assert len(text) < 1000
