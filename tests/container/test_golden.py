"""Files of the reference writers: they open, verify, and are written again byte for byte."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import cortiq.container
from cortiq.container import copy, open_single, verify
from cortiq.errors import Shard

DATA = Path(__file__).parents[1] / "data" / "container"
FILES = (
    "llama-q8.cmf",
    "loop.skill.cmf",
    "convert-raw-q8.cmf.gz",
    "grown-1.cmf",
    "ragged-py-vbit.cmf",
    "set-00004-of-00004.cmf",
)


@pytest.fixture(params=FILES)
def golden(request, tmp_path):
    source = DATA / request.param
    if source.suffix != ".gz":
        return source
    path = tmp_path / source.stem
    path.write_bytes(gzip.decompress(source.read_bytes()))
    return path


def test_opens_and_verifies(golden):
    with open_single(golden) as file:
        report = verify(file)
        assert report.problems == ()
        assert report.unhashed == ()
        assert report.checked == len(file) + 2 + len([n for n in ("masks", "vocab", "index") if file.section(n)])


def test_copy_gives_the_same_bytes(golden, tmp_path):
    target = tmp_path / f"copy-{golden.name}"
    with open_single(golden) as file:
        copy(file, target)
    assert target.read_bytes() == golden.read_bytes()


def test_llama_in_detail():
    with cortiq.container.open(DATA / "llama-q8.cmf") as file:
        assert file.arch.num_attention_heads == 4
        assert file.arch.layer_types == ("FullAttention",) * 4
        assert file.header.quant_type == "Q8_ROW"
        assert file.header["provenance"]["tool"] == "cortiq convert"
        assert file.tokenizer_config["eos_token_ids"] == list(file.header.chat.eos_token_ids)
        assert file.tokenizer_json.startswith(b"{")
        assert len(file) == 39
        tensor = file["model.embed_tokens.weight"]
        assert (tensor.dtype, tensor.nbytes) == ("q8_row", tensor.shape[0] * (tensor.shape[1] + 2))
        assert tensor.numpy().shape == tensor.shape


def test_grown_file_has_its_header_at_the_tail_and_dead_bytes():
    with open_single(DATA / "grown-1.cmf") as file:
        assert file.envelope.header.offset > file.envelope.data.offset
        report = verify(file)
        assert [warning.kind for warning in report.warnings] == ["Parse.dead_bytes"]
        assert report.dead == report.warnings[0].found == 8064


def test_streamed_file_has_a_hole_of_padding(tmp_path):
    path = tmp_path / "raw.cmf"
    path.write_bytes(gzip.decompress((DATA / "convert-raw-q8.cmf.gz").read_bytes()))
    with open_single(path) as file:
        report = verify(file)
        assert report.dead == 0
        assert report.padding > 7_000_000


def test_skill_file_states_its_features():
    with open_single(DATA / "loop.skill.cmf") as file:
        assert file.envelope.features == 0b1100011
        assert file.header.is_skill_file
        assert file.section("masks") is not None


def test_one_file_of_a_shard_set():
    path = DATA / "set-00004-of-00004.cmf"
    with open_single(path) as file:
        assert (file.header.shard.no, file.header.shard.count) == (4, 4)
    with pytest.raises(Shard, match="set-00001-of-00004") as caught:
        cortiq.container.open(path)
    assert caught.value.kind == "Shard.missing"
