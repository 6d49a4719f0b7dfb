"""``python/cmf_reader.py`` alone: dtypes, sections, skills, shard sets, digests."""

from __future__ import annotations

import ast
import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cmf_reader
from builders.cmf import ARCH, F16, U8, Cmf, T, header, pattern, two_layers
from builders.reference import DATA
from builders.weights import GoldenTensor, golden_tensors, hash_vectors
from cmf_reader import CmfError, CmfFile, hash64, open_model, verify

SOURCE = Path(cmf_reader.__file__)


def refuses(what: str, call: Any, *arguments: Any) -> CmfError:
    with pytest.raises(CmfError) as caught:
        call(*arguments)
    assert str(caught.value).startswith(f"{what}: ")
    return caught.value


def opened(made: Cmf, folder: Path, name: str = "model.cmf") -> CmfFile:
    return CmfFile(made.save(folder / name))


def half(count: int, seed: int = 1) -> bytes:
    return np.linspace(-seed, seed, count).astype(np.float16).tobytes()


def test_it_needs_numpy_alone_and_stays_small() -> None:
    tree = ast.parse(SOURCE.read_text())
    names = [a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names]
    names += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) == {"numpy"}
    assert len(SOURCE.read_text().splitlines()) <= 600
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert all((node.end_lineno or 0) - node.lineno < 60 and len(node.args.args) <= 7 for node in functions)


@pytest.mark.parametrize(("data", "expected"), hash_vectors(), ids=lambda v: len(v) if isinstance(v, bytes) else "")
def test_hash64(data: bytes, expected: int) -> None:
    assert hash64(data) == expected


def test_hash64_does_not_see_words_that_changed_places() -> None:
    assert hash64(b"0123456789abcdef") == hash64(b"89abcdef01234567")


@pytest.mark.parametrize("golden", golden_tensors(), ids=lambda golden: f"{golden.target}/{golden.name}")
def test_dtypes_decode_to_the_recorded_bits(golden: GoldenTensor, tmp_path: Path) -> None:
    made = Cmf(header(), [T("t", golden.dtype, golden.shape, golden.payload)]).build()
    values = opened(made, tmp_path).tensors["t"].array()
    assert (values.dtype, values.shape) == (np.float32, golden.shape)
    assert golden.decoded_hash in (None, hash64(values.tobytes()))


def test_masks_of_a_looped_skill_file() -> None:
    file = CmfFile(DATA / "loop.skill.cmf")
    default_task, masks = file.masks()
    arch, mask = file.header["arch"], masks[default_task]
    layers = arch["num_layers"]
    assert mask["ffn"].shape == (layers * arch["num_loops"], arch["intermediate_size"])
    assert (mask["heads"].shape, mask["gates"].shape) == ((layers, arch["num_attention_heads"]), (1, layers))
    assert mask["heads"].all()
    assert mask["gates"].all()
    assert 0 < mask["ffn"].mean() < 1
    assert not mask["tail"]


def mask_section(arch: dict[str, Any], blobs: list[bytes], **more: Any) -> bytes:
    """Masks m0, m1, ... with these bits from byte 2048 on; ``more`` changes the meta of each."""
    masks = [
        {"task_id": i, "name": f"m{i}", "sparsity": 0.5, "quality": None, "priority": "Normal",
         "blob_off": 2048 + 512 * i, "blob_len": len(blob), **more}
        for i, blob in enumerate(blobs)
    ]  # fmt: skip
    meta = json.dumps({"default_task": "m0", "masks": masks}).encode()
    section = bytearray(2048 + 512 * len(blobs))
    section[: 8 + len(meta)] = struct.pack("<II", len(blobs), len(meta)) + meta
    for i, blob in enumerate(blobs):
        section[2048 + 512 * i : 2048 + 512 * i + len(blob)] = blob
    return bytes(section)


PLAIN = b"\x01" + bytes(23) + b"\x0f\x03" + b"\x02"  # 2 x 96 neurons, 2 x 4 heads, 2 gates


def with_masks(section: bytes, **arch: Any) -> Cmf:
    return Cmf(header(arch={**ARCH, **arch}), [], masks=section, features=3).build()


def test_mask_bits_are_least_significant_first(tmp_path: Path) -> None:
    _, masks = opened(with_masks(mask_section(ARCH, [PLAIN])), tmp_path).masks()
    assert np.argwhere(masks["m0"]["ffn"]).tolist() == [[0, 0]]
    assert masks["m0"]["heads"].tolist() == [[True] * 4, [True, True, False, False]]
    assert masks["m0"]["gates"].tolist() == [[False, True]]
    assert masks["m0"]["experts"].shape == (2, 0)


def test_expert_masks(tmp_path: Path) -> None:
    moe = {"num_experts": 10, "top_k": 2, "moe_intermediate_size": 32}
    section = mask_section(ARCH, [PLAIN + b"\xff\x03\x05\x00"], has_expert_fields=True)
    _, masks = opened(with_masks(section, moe=moe), tmp_path).masks()
    assert masks["m0"]["experts"].sum(axis=1).tolist() == [10, 2]
    refuses("Parse.mask_meta", opened(with_masks(section), tmp_path).masks)


def test_bits_beyond_a_dimension_are_dropped_and_reported(tmp_path: Path) -> None:
    tail = PLAIN[:24] + b"\xff" + PLAIN[25:]
    file = opened(with_masks(mask_section(ARCH, [tail])), tmp_path)
    assert file.masks()[1]["m0"]["heads"].shape == (2, 4)
    assert [str(problem).partition(":")[0] for problem in verify(file)] == ["Parse.mask_tail"]


@pytest.mark.parametrize(
    ("section", "what"),
    [
        (b"\1\0\0\0", "Bounds.mask_count"),
        (struct.pack("<II", 0, 2**32 - 1), "Bounds.mask_meta"),
        (struct.pack("<II", 0, 2) + b"[]", "Parse.mask_meta"),
        (struct.pack("<II", 0, 4) + b"nul\xff", "Parse.utf8"),
        (b"\2" + mask_section(ARCH, [PLAIN])[1:], "Parse.mask_count"),
        (mask_section(ARCH, [PLAIN + b"\0"]), "Bounds.mask_len"),
        (mask_section(ARCH, [PLAIN], blob_off=2052), "Bounds.mask_blob"),
        (mask_section(ARCH, [PLAIN], blob_off=0), "Bounds.mask_blob"),
        (mask_section(ARCH, [PLAIN], blob_off=2**64 - 8), "Bounds.mask_blob"),
        (mask_section(ARCH, [PLAIN], blob_off=2560 - 8), "Bounds.mask_blob"),
        (mask_section(ARCH, [PLAIN, PLAIN], blob_off=2048), "Bounds.mask_overlap"),
        (mask_section(ARCH, [PLAIN, PLAIN], name="m"), "Parse.mask_meta"),
        (mask_section(ARCH, [PLAIN], quality=1.0), "Parse.mask_meta"),
        (mask_section(ARCH, [PLAIN], priority="Best"), "Parse.mask_meta"),
    ],
)
def test_masks_are_refused(section: bytes, what: str, tmp_path: Path) -> None:
    refuses(what, opened(with_masks(section), tmp_path).masks)


def test_sparse_index(tmp_path: Path) -> None:
    entries = struct.pack("<4I2H3B", 7, 1, 2, 3, 0, 2, 0, 1, 3) + b"\0" + struct.pack("<4I", 8, 0, 0, 0)
    made = Cmf(header(), [], index=struct.pack("<II", 2, 0) + entries).build()
    assert opened(made, tmp_path).index() == [(7, 1, (0, 2), b"\0\1\3"), (8, 0, (), b"")]


@pytest.mark.parametrize(
    "index", [b"\0\0\0\0", struct.pack("<II", 2**32 - 1, 0), struct.pack("<6I", 1, 0, 0, 0, 2**31, 0)]
)
def test_sparse_index_is_refused(index: bytes, tmp_path: Path) -> None:
    refuses("Bounds.index", opened(Cmf(header(), [], index=index).build(), tmp_path).index)


def test_tokenizer_and_chat_bundle(tmp_path: Path) -> None:
    file = opened(two_layers(), tmp_path)
    assert json.loads(file.section("vocab"))["model"]["type"] == "BPE"
    assert file.header["tokenizer_config"]["eos_token_ids"] == [2]


def test_a_skill_replaces_tensors(tmp_path: Path) -> None:
    tensors = [T("a", F16, (2,), half(2)), T("b", F16, (2,), half(2, 3)), T("skill.sql.a", F16, (2,), half(2, 5))]
    file = opened(Cmf(header(skills=[{"id": "sql"}, {"id": "idle"}]), tensors).build(), tmp_path)
    assert file.tensor("a").array().tolist() == [-1, 1]
    assert file.tensor("a", "sql").array().tolist() == [-5, 5]
    assert file.tensor("b", "sql").array().tolist() == [-3, 3]
    assert file.tensor("a", "idle").name == "a"
    wrong = Cmf(header(), [*tensors[:2], T("skill.sql.a", F16, (1,), half(1))]).build()
    refuses("Parse.skill_shape", opened(wrong, tmp_path, "wrong.cmf").tensor, "a", "sql")
    assert refuses("Usage.skill", file.tensor, "a", "poem").exit_code == 2
    assert refuses("MissingTensor.name", file.tensor, "c", "sql").exit_code == 7


@pytest.mark.parametrize(
    ("skills", "what"),
    [
        ([{"id": "a.b"}], "Parse.skill_id"),
        ([{"id": ""}], "Parse.skill_id"),
        ([{"id": "a"}, {"id": "a"}], "Parse.skill_dup"),
        ([{"id": "a", "base_dir_hash": "0x1"}], "Parse.skill_file"),
        ([{"id": "a", "base_dir_hash": "1"}], "Parse.skill_file"),
        ([{"name": "a"}], "Parse.skill"),
        (None, "Parse.skill"),
    ],
)
def test_skills_are_refused(skills: Any, what: str, tmp_path: Path) -> None:
    refuses(what, opened, Cmf(header(skills=skills), []).build(), tmp_path)


def test_a_standalone_skill_knows_its_base(tmp_path: Path) -> None:
    base = opened(two_layers(), tmp_path)
    bound = header(skills=[{"id": "a", "base_dir_hash": f"{base.hashes['directory']:X}"}])
    skill = opened(Cmf(bound, [T("a", F16, (2,), half(2))], features=65).build(), tmp_path, "skill.cmf")
    skill.check_base(base)
    assert refuses("BaseMismatch.base", skill.check_base, skill).exit_code == 4
    refuses("Usage.no_skill_file", base.check_base, base)


def shards(folder: Path, count: int = 3, **more: Any) -> list[Path]:
    """A set of files, each with one tensor; ``more`` maps "s2" and so on to changes of the header."""
    paths = []
    for no in range(1, count + 1):
        shard = {"no": no, "count": count, "set": "ab" * 16}
        fields = {**header(shard=shard), **more.get(f"s{no}", {})}
        made = Cmf(fields, [T(more.get(f"name{no}", f"t{no}"), F16, (2,), half(2, no))]).build()
        paths.append(made.save(folder / f"m-{no:05}-of-{count:05}.cmf"))
    return paths


@pytest.mark.parametrize("no", [1, 2, 3])
def test_any_name_opens_the_set(no: int, tmp_path: Path) -> None:
    model = open_model(shards(tmp_path)[no - 1])
    assert model.header["shard"]["no"] == 1
    assert [model.tensor(f"t{i}").array()[1] for i in (1, 2, 3)] == [1, 2, 3]


def test_a_set_of_one_and_a_name_without_a_block_are_single_files(tmp_path: Path) -> None:
    assert list(open_model(shards(tmp_path, 1)[0]).tensors) == ["t1"]
    assert len(open_model(two_layers().save(tmp_path / "x-00001-of-00002.cmf")).tensors) == 6


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"s2": {"shard": {"no": 3, "count": 3}}}, "Shard.mismatch"),
        ({"s3": {"shard": {"no": 3, "count": 4}}}, "Shard.mismatch"),
        ({"s3": {"shard": None}}, "Shard.mismatch"),
        ({"s2": {"shard": {"no": 2, "count": 3, "set": "cd" * 16}}}, "Shard.set_mismatch"),
        ({"s2": {"shard": {"no": 2, "count": 3}}}, "Shard.set_mismatch"),
        ({"s1": {"shard": {"no": 1, "count": 3, "set": "ab" * 16, "dirs": ["0"] * 3}}}, "Shard.set_mismatch"),
        ({"s1": {"shard": {"no": 1, "count": 3, "set": "ab" * 16, "dirs": []}}}, "Parse.shard"),
        ({"s1": {"shard": {"no": 1, "count": 3, "set": "ab"}}}, "Parse.shard"),
        ({"name3": "t1"}, "Parse.name_dup"),
    ],
)
def test_a_set_that_does_not_belong_together(change: Any, what: str, tmp_path: Path) -> None:
    refuses(what, open_model, shards(tmp_path, **change)[0])


def test_a_set_without_a_name_of_its_own_is_compared_by_arch(tmp_path: Path) -> None:
    plain = {f"s{no}": {"shard": {"no": no, "count": 3}} for no in (1, 2, 3)}
    assert len(open_model(shards(tmp_path, **plain)[0]).tensors) == 3
    plain["s2"]["arch"] = {**ARCH, "hidden_size": 65}
    refuses("Shard.set_mismatch", open_model, shards(tmp_path, **plain)[0])


def test_a_set_with_a_hole_or_another_name(tmp_path: Path) -> None:
    paths = shards(tmp_path)
    refuses("Shard.mismatch", open_model, paths[0].rename(tmp_path / "other.cmf"))
    refuses("Shard.missing", open_model, paths[1])


def with_digests(*, spare: int = 0, **changes: Any) -> Cmf:
    tensors = [T("a", U8, (64,), pattern(64)), T("b", U8, (64,), pattern(64, 9))]
    sums = b"".join(hashlib.sha256(t.payload).digest() for t in tensors) + bytes(spare)
    vocab = b'{"model": {}}'
    stated = {"alg": "sha256", "tensor": "d", "sections": {"vocab": hashlib.sha256(vocab).hexdigest()}, **changes}
    return Cmf(header(digests=stated), [tensors[0], T("d", U8, (len(sums),), sums), tensors[1]], vocab=vocab).build()


def test_digests_see_what_hash64_does_not(tmp_path: Path) -> None:
    assert verify(opened(with_digests(), tmp_path)) == []
    made = with_digests()
    at = made.get("data_off") + made.get_record(2, "off")
    made.put(at, bytes(made.data[at + 8 : at + 16] + made.data[at : at + 8]))
    (problem,) = verify(opened(made, tmp_path))
    assert (problem.kind, problem.code, problem.tensor) == ("HashMismatch", "tensor", "b")
    assert "SHA-256" in str(problem)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"alg": "md5"}, "UnsupportedFeature.digests"),
        ({"spare": 1}, "Parse.digests"),
        ({"tensor": "none"}, "Parse.digests"),
        ({"tensor": 5}, "Parse.digests"),
        ({"sections": {"vocab": "AB" * 32}}, "Parse.digests"),
    ],
)
def test_digests_that_cannot_be_read(change: Any, what: str, tmp_path: Path) -> None:
    refuses(what, opened(with_digests(**change), tmp_path).digests)


def test_verify_names_what_is_damaged(tmp_path: Path) -> None:
    made = two_layers()
    for at in (made.get("vocab_off"), made.get("data_off") + made.get_record(4, "off")):
        made.put(at, bytes([made.data[at] ^ 1]))
    found = [(problem.kind, problem.code, problem.tensor) for problem in verify(opened(made, tmp_path))]
    assert found == [("HashMismatch", "vocab", None), ("HashMismatch", "tensor", "model.layers.1.mlp.gate_proj.weight")]


def test_a_file_without_hashes_opens(tmp_path: Path) -> None:
    made = two_layers().set("header_hash", 0).set("dir_hash", 0)
    assert verify(opened(made, tmp_path)) == []
    refuses("HashMismatch.header", opened, made.set("header_hash", 1), tmp_path)


def test_only_regular_files(tmp_path: Path) -> None:
    refuses("Usage.not_regular", CmfFile, tmp_path)
    with pytest.raises(FileNotFoundError):
        CmfFile(tmp_path / "none.cmf")
