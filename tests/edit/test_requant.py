"""Requantizing a file: what changes, what is carried over, and that nothing depends on threads or blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cortiq
from builders.cmf import Cmf, T, two_layers
from builders.tiny import DATA
from builders.weights import heavy_tailed
from cortiq.convert import ConvertOptions, convert, parse_overrides
from cortiq.edit import requant
from cortiq.errors import Bounds, CortiqError, HashMismatch, NonFinite, UsageError
from cortiq.layouts import layout

LAYOUT_FILES = DATA.parent / "layouts" / "cmf"
UPSTREAM = {"embed": "same", "head": "same", "encoder": "plain", "digests": False}
GATE, DOWN = "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.down_proj.weight"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A converted model of 8-bit matrices."""
    convert(DATA / "qwen2", tmp_path / "source.cmf", ConvertOptions(quant="q8_row", digests=False))
    return tmp_path / "source.cmf"


def with_sections(**tensors: tuple[str, tuple[int, ...]]) -> Cmf:
    """A file with masks, tokenizer and index, and these tensors beside its own: dtype and shape by name."""
    file = two_layers()
    made = []
    for name, (dtype, shape) in tensors.items():
        values = heavy_tailed(1, int(np.prod(shape))).reshape(shape)
        payload = bytes(values.size) if dtype == "u8" else layout(dtype).encode(values)
        made.append(T(name.replace("__", "."), layout(dtype).id, shape, payload))
    kept = [t for t in file.tensors if t.dtype == layout("f16").id]
    gate = T(GATE, layout("q4_tiled").id, (96, 64), layout("q4_tiled").encode(heavy_tailed(96, 64)))
    return file.with_tensors(*kept, gate, *made)


@pytest.mark.parametrize("source", [LAYOUT_FILES / "ragged-q4t.cmf", DATA.parent / "dtypes" / "ragged-q4.cmf"])
def test_upstreams_q4tp_of_a_four_bit_file(source: Path, tmp_path: Path) -> None:
    output, upstream = tmp_path / "out.cmf", source.stem.replace("ragged", "requant-q4tp-from")
    requant(source, output, ConvertOptions(quant="q4tp", **UPSTREAM))  # type: ignore[arg-type]
    with cortiq.open(output) as found, cortiq.open(LAYOUT_FILES / f"{upstream}.cmf") as expected:
        assert list(found) == list(expected)
        for name in found:
            assert (found[name].dtype, found[name].shape) == (expected[name].dtype, expected[name].shape)
            assert found[name].raw == expected[name].raw, name
        assert found.tokenizer_json == expected.tokenizer_json
        assert found.header.quant_type == expected.header.quant_type
        assert found.envelope.features == expected.envelope.features


@pytest.mark.parametrize("quant", ["q4_tiled", "q4_block", "q4tp", "q2tp", "vbit_ro", "q1s", "f16"])
def test_matrices_are_those_of_the_decoded_file(quant: str, source: Path, tmp_path: Path) -> None:
    requant(source, tmp_path / "out.cmf", ConvertOptions(quant=quant, digests=False))
    with cortiq.open(source) as before, cortiq.open(tmp_path / "out.cmf") as after:
        assert list(before) == list(after)
        assert after[GATE].dtype == quant
        for name in before:
            if after[name].dtype == before[name].dtype:
                assert after[name].raw == before[name].raw
            elif quant != "vbit_ro":
                expected = layout(after[name].dtype).encode(before[name].numpy().astype(np.float32))
                assert after[name].raw == expected
        assert not cortiq.container.verify(after).problems


@pytest.mark.parametrize("quant", ["vbit_ro", "q4tp", "q2tp", "q4_block", "q8_2f", "q1s", "q1t"])
def test_every_dtype_is_a_source(quant: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requant(source, tmp_path / "made.cmf", ConvertOptions(quant=quant))
    monkeypatch.setattr("cortiq.convert.encode.BLOCK_WEIGHTS", 300)
    requant(tmp_path / "made.cmf", tmp_path / "q8.cmf", ConvertOptions(quant="q8_row", threads=3))
    with cortiq.open(tmp_path / "made.cmf") as before, cortiq.open(tmp_path / "q8.cmf") as after:
        assert before[GATE].dtype == quant
        assert after[GATE].raw == layout("q8_row").encode(before[GATE].numpy())


@pytest.mark.parametrize("quant", ["q4tp", "vbit_ro"])
def test_bytes_do_not_depend_on_threads_blocks_or_name(
    quant: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requant(source, tmp_path / "a.cmf", ConvertOptions(quant=quant))
    monkeypatch.setattr("cortiq.convert.encode.BLOCK_WEIGHTS", 500)
    renamed = tmp_path / "renamed.cmf"
    renamed.write_bytes(source.read_bytes())
    requant(renamed, tmp_path / "b.cmf", ConvertOptions(quant=quant, threads=4))
    assert (tmp_path / "a.cmf").read_bytes() == (tmp_path / "b.cmf").read_bytes()


def test_everything_else_is_carried_over(tmp_path: Path) -> None:
    built = with_sections(
        extra__vector=("f32", (70,)),
        extra__bank=("f16", (2, 3, 32)),
        extra__raw=("u8", (9,)),
        model__layers__1__mlp__gate_proj__weight=("f32", (96, 64)),
        model__layers__1__mlp__down_proj__weight=("f16", (64, 72)),
    ).with_header(custom={"kept": [1, 2.5, None]}, tokenizer_config={"eos_token_ids": [2], "other": "kept"})
    path = built.save(tmp_path / "in.cmf")
    receipt = requant(path, tmp_path / "out.cmf", ConvertOptions(quant="q4tp"))
    with cortiq.open(path) as before, cortiq.open(tmp_path / "out.cmf") as after:
        changed = {name for name in before if before[name].raw != after[name].raw}
        assert changed == {GATE, "model.layers.1.mlp.gate_proj.weight"}
        for section in ("masks", "vocab", "index"):
            assert before.section(section) == after.section(section) is not None
        fields, old = after.header.to_dict(), before.header.to_dict()
        for name in ("arch", "custom", "tokenizer_config"):
            assert fields[name] == old[name]
        assert fields["quant_type"] == "Q4_BLOCK"
        assert fields["provenance"]["tool"] == "test"
        (done,) = fields["provenance"]["requant"]
        assert done == {"tool": "cortiq requant", "from": "F16", "options": {"quant": "q4tp", "encoder": "best"}}
    assert any("model.layers.1.mlp.down_proj.weight: f16 as before" in note for note in receipt.warnings)


def test_provenance_grows(source: Path, tmp_path: Path) -> None:
    for quant in ("f16", "q8_row", "q4tp"):
        requant(source, None, ConvertOptions(quant=quant))
    with cortiq.open(source) as file:
        provenance = file.header["provenance"]
        assert provenance["tool"] == "cortiq convert"
        assert [done["options"]["quant"] for done in provenance["requant"]] == ["f16", "q8_row", "q4tp"]
        assert [done["from"] for done in provenance["requant"]] == ["Q8_ROW", "F16", "Q8_ROW"]


@pytest.mark.parametrize("provenance", [None, "a sentence", ["a list"]])
def test_provenance_of_any_shape_is_kept(provenance: object, tmp_path: Path) -> None:
    path = with_sections().with_header(provenance=provenance).save(tmp_path / "in.cmf")
    requant(path, tmp_path / "out.cmf", ConvertOptions(quant="f16"))
    with cortiq.open(tmp_path / "out.cmf") as file:
        found = file.header["provenance"]
    assert len(found["requant"]) == 1
    assert provenance is None or found["source"] == (tuple(provenance) if isinstance(provenance, list) else provenance)


def test_stale_digests_and_shard_blocks_are_dropped(tmp_path: Path) -> None:
    built = with_sections(cmf__digests__sha256=("u8", (32 * 5,)))
    header = {"digests": {"alg": "sha256", "tensor": "cmf.digests.sha256"}, "shard": {"no": 1, "count": 1}}
    path = built.with_header(**header).save(tmp_path / "in.cmf")
    requant(path, tmp_path / "out.cmf", ConvertOptions(quant="q8_row"))
    with cortiq.open(path) as before, cortiq.open(tmp_path / "out.cmf") as after:
        assert after.header.shard is None
        name = "cmf.digests.sha256"
        assert name not in after or after[name].raw != before[name].raw


def test_the_file_itself_is_replaced_as_a_whole(source: Path, tmp_path: Path) -> None:
    expected = tmp_path / "expected.cmf"
    requant(source, expected, ConvertOptions(quant="q4tp"))
    with cortiq.open(source) as before:
        inode = source.stat().st_ino
        requant(source, None, ConvertOptions(quant="q4tp"))
        assert before[GATE].dtype == "q8_row"
        assert source.stat().st_ino != inode
    assert source.read_bytes() == expected.read_bytes()


def test_a_link_to_the_file_stays_a_link(source: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.cmf"
    link.symlink_to(source)
    requant(link, None, ConvertOptions(quant="q4tp"))
    assert link.is_symlink()
    with cortiq.open(source) as file:
        assert file[GATE].dtype == "q4tp"


def test_what_has_its_dtype_is_kept(source: Path, tmp_path: Path) -> None:
    receipt = requant(source, tmp_path / "out.cmf", ConvertOptions(quant="q8_row"))
    with cortiq.open(source) as before, cortiq.open(tmp_path / "out.cmf") as after:
        assert all(before[name].raw == after[name].raw for name in before)
    assert receipt.dtypes["q8_row"] > 0


def test_vbit_is_encoded_again_for_another_budget(source: Path, tmp_path: Path) -> None:
    requant(source, tmp_path / "a.cmf", ConvertOptions(quant="vbit_ro"))
    requant(tmp_path / "a.cmf", tmp_path / "b.cmf", ConvertOptions(quant="vbit_ro"))
    requant(tmp_path / "a.cmf", tmp_path / "c.cmf", ConvertOptions(quant="vbit_ro", mean_bits=3.0))
    with cortiq.open(tmp_path / "a.cmf") as a, cortiq.open(tmp_path / "b.cmf") as b:
        assert a[GATE].raw == b[GATE].raw
        with cortiq.open(tmp_path / "c.cmf") as c:
            assert c[GATE].nbytes < b[GATE].nbytes


def test_rules_by_name_go_first(source: Path, tmp_path: Path) -> None:
    rules = parse_overrides(("down_proj=q4tp", r"^model\.norm=f32"))
    requant(source, tmp_path / "out.cmf", ConvertOptions(quant="q8_row", embed="f16", overrides=rules))
    with cortiq.open(tmp_path / "out.cmf") as file:
        assert file[DOWN].dtype == "q4tp"
        assert file["model.norm.weight"].dtype == "f32"
        assert file["model.embed_tokens.weight"].dtype == "f16"
        assert file[GATE].dtype == "q8_row"


@pytest.mark.parametrize("name", [GATE, "model.norm.weight"])
def test_bytes_that_are_not_what_was_hashed_are_refused(name: str, source: Path, tmp_path: Path) -> None:
    with cortiq.open(source) as file:
        at = file.envelope.data.offset + file.tensors[name].off
    data = bytearray(source.read_bytes())
    data[at] ^= 1
    source.write_bytes(data)
    with pytest.raises(HashMismatch) as raised:
        requant(source, tmp_path / "out.cmf", ConvertOptions(quant="q4tp"))
    assert raised.value.kind == "HashMismatch.tensor"
    assert raised.value.tensor == name
    assert not (tmp_path / "out.cmf").exists()


def test_content_that_cannot_be_decoded_is_refused(tmp_path: Path) -> None:
    payload = bytearray(layout("vbit_ro").encode(heavy_tailed(96, 64)))
    payload[96 + 96 * 4] ^= 1  # the first row offset
    file = two_layers()
    tensors = [*file.tensors[:2], T(GATE, 10, (96, 64), bytes(payload))]
    path = file.with_tensors(*tensors).save(tmp_path / "in.cmf")
    with pytest.raises(Bounds) as raised:
        requant(path, tmp_path / "out.cmf", ConvertOptions(quant="q8_row"))
    assert raised.value.kind == "Bounds.vbit_offsets"
    assert raised.value.tensor == GATE


def test_a_weight_that_is_no_number_is_named(tmp_path: Path) -> None:
    values = heavy_tailed(96, 64)
    values[7, 9] = np.nan
    file = two_layers()
    path = file.with_tensors(*file.tensors[:2], T(GATE, 0, (96, 64), values.tobytes())).save(tmp_path / "in.cmf")
    with pytest.raises(NonFinite, match=r"\[7, 9\]") as raised:
        requant(path, tmp_path / "out.cmf", ConvertOptions(quant="q4tp"))
    assert raised.value.tensor == GATE


@pytest.mark.parametrize("case", ["exists", "itself", "signed", "rule"])
def test_requests_that_cannot_be_meant(case: str, source: Path, tmp_path: Path) -> None:
    output: Path | None = tmp_path / "out.cmf"
    options, code = ConvertOptions(quant="q4tp"), "exists"
    if case == "exists":
        (tmp_path / "out.cmf").write_bytes(b"precious")
    elif case == "itself":
        output, options = source, ConvertOptions(quant="q4tp", force=True)
    elif case == "signed":
        source.with_name("source.cmf.sig").write_bytes(b"a signature")
        output, code = None, "signed"
    else:
        options, code = ConvertOptions(overrides=parse_overrides(("nothing=q8",))), "tensor_rule"
    before = source.read_bytes()
    with pytest.raises(UsageError) as raised:
        requant(source, output, options)
    assert raised.value.code == code
    assert source.read_bytes() == before
    if case == "exists":
        assert (tmp_path / "out.cmf").read_bytes() == b"precious"


def test_a_missing_file_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises((OSError, CortiqError)):
        requant(tmp_path / "none.cmf", tmp_path / "out.cmf", ConvertOptions())
