"""Growth in place (SPEC 9): what is appended, what is kept, what is refused."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from builders.cmf import U8, Cmf, T, header, pattern, two_layers
from builders.operations import OTHER_MASKS, registered, state_of, tensor
from builders.recorder import Recorder, install
from cortiq.container import TensorSpec, grow, open_single, verify
from cortiq.container.digest import TENSOR as DIGESTS
from cortiq.container.digest import read_digests
from cortiq.container.extents import extents
from cortiq.container.growth import tail_start
from cortiq.edit.history import log, undo
from cortiq.edit.metadata import edit_header
from cortiq.errors import Changed, FormatError, HashMismatch, MissingTensor, Parse, UsageError

MIB = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return two_layers().save(tmp_path / "model.cmf")


def problems(path: Path) -> list[str]:
    with open_single(path) as file:
        return [error.kind for error in verify(file, require_hashes=True).problems]


def test_old_bytes_stay_and_128_change(path: Path) -> None:
    before = path.read_bytes()
    with open_single(path) as file:
        names, records = list(file), file.tensors.raw
    envelope = grow(path, add=[tensor("extra.a.x", 100), tensor("extra.a.y", 20_000, 2)])
    after = path.read_bytes()
    assert after[:128] == envelope.pack()
    assert after[128 : len(before)] == before[128:]
    with open_single(path) as file:
        assert file.envelope == envelope
        assert list(file) == [*names, "extra.a.x", "extra.a.y"]
        new = [file.tensors[name] for name in ("extra.a.x", "extra.a.y")]
        assert all(entry.off % 64 == 0 for entry in new)
        assert envelope.data.offset + new[0].off >= len(before)
        assert envelope.data.nbytes == new[1].off + new[1].nbytes
        assert bytes(file["extra.a.y"].raw) == pattern(20_000, 2)
        assert file.tensors.raw[16 : 16 + 56 * len(names)] == records[16 : 16 + 56 * len(names)]
    assert problems(path) == []


def test_header_masks_vocab_and_index_stay_where_they_are(path: Path) -> None:
    with open_single(path) as file:
        before = file.envelope
    after = grow(path, add=[tensor("t")])
    for name in ("header", "masks", "vocab", "index"):
        assert after.section(name) == before.section(name)
    assert after.directory.offset > before.directory.offset


def test_header_alone_keeps_the_directory_and_its_hash(path: Path) -> None:
    with open_single(path) as file:
        before = file.envelope
    after = grow(path, header=lambda fields: {**fields, "license": "x"})
    assert after.directory == before.directory
    assert after.directory_hash == before.directory_hash
    with open_single(path) as file:
        assert file.header["license"] == "x"
        assert file.header["section_hashes"] == before_hashes()
    assert problems(path) == []


def before_hashes() -> dict[str, str]:
    hashes: dict[str, str] = json.loads(two_layers().section("header"))["section_hashes"]
    return hashes


def test_a_mapping_replaces_the_header(path: Path) -> None:
    grow(path, header=header(note=1))
    with open_single(path) as file:
        assert "tokenizer_config" not in file.header
        assert file.header["section_hashes"] == before_hashes()


def test_remove_and_replace(path: Path) -> None:
    grow(path, remove=["model.norm.weight"])
    with open_single(path) as file:
        assert "model.norm.weight" not in file
        last = max(entry.off + entry.nbytes for entry in file.tensors.values())
        assert file.envelope.data.nbytes == last
    grow(path, remove=["model.embed_tokens.weight"], add=[tensor("model.embed_tokens.weight", 64)])
    with open_single(path) as file:
        assert list(file)[-1] == "model.embed_tokens.weight"
        assert file.tensors["model.embed_tokens.weight"].nbytes == 64
    assert problems(path) == []


@pytest.mark.parametrize("masks", [OTHER_MASKS, b""], ids=["other", "none"])
def test_masks_and_their_feature_bit(path: Path, masks: bytes) -> None:
    envelope = grow(path, masks=masks)
    with open_single(path) as file:
        assert bytes(file.section("masks") or b"") == masks
        assert ("masks" in file.header["section_hashes"]) is bool(masks)
    assert envelope.features == (0b11 if masks else 0b1)
    assert problems(path) == []


def test_a_two_field_tensor_sets_its_bit(path: Path) -> None:
    assert grow(path, add=[TensorSpec("q", 9, (2, 2), 12, [bytes(12)])]).features == 0b111


def test_hashes_are_filled_in(tmp_path: Path) -> None:
    path = two_layers().set("header_hash", 0).set("dir_hash", 0).save(tmp_path / "model.cmf")
    envelope = grow(path, header=lambda fields: {**fields, "x": 1})
    assert envelope.header_hash
    assert envelope.directory_hash
    assert problems(path) == []


@pytest.mark.parametrize("change", [{}, {"header": lambda fields: fields}])
def test_nothing_to_do_writes_nothing(path: Path, change: dict[str, object]) -> None:
    before = path.read_bytes()
    assert grow(path, **change).pack() == before[:128]
    assert path.read_bytes() == before


def test_a_skill_and_its_record_in_one_operation(path: Path) -> None:
    """What a swarm needs (SPEC 9): replacement tensors, the registry, masks; one commit."""
    name = "model.layers.1.mlp.gate_proj.weight"
    with open_single(path) as file:
        entry = file.tensors[name]
    record = {"id": "sql", "name": "SQL", "layers": [1], "input_mask_task": None, "quality": None}
    payload = pattern(entry.nbytes, 11)
    grow(
        path,
        add=[TensorSpec(f"skill.sql.{name}", entry.dtype, entry.shape, entry.nbytes, [payload])],
        header=lambda fields: {**fields, "skills": [*fields.get("skills", []), record]},
        what="skill add sql",
    )
    with open_single(path) as file:
        assert [skill["id"] for skill in file.header["skills"]] == ["sql"]
        assert bytes(file[f"skill.sql.{name}"].raw) == payload
        assert file.tensors[f"skill.sql.{name}"].shape == file.tensors[name].shape
    assert problems(path) == []
    assert log(path).versions[-1].what == "skill add sql"


def test_a_snapshot_opened_before_is_untouched(path: Path) -> None:
    with open_single(path) as file:
        live = [extent for extent in extents(file) if extent.name != "envelope"]
        before = [bytes(file.mapping.view(extent.start, extent.end - extent.start)) for extent in live]
        grow(path, add=[tensor("t")], masks=b"")
        assert [bytes(file.mapping.view(extent.start, extent.end - extent.start)) for extent in live] == before


def test_dead_bytes_are_not_used_again(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"\xee" * 777)
    size = path.stat().st_size
    with open_single(path) as file:
        assert tail_start(file, size) >= size
    grow(path, add=[tensor("t")])
    assert path.read_bytes()[size - 777 : size] == b"\xee" * 777


class TestDigests:
    """A file with strong digests keeps having them for everything."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return with_digests(two_layers()).save(tmp_path / "model.cmf")

    def check(self, path: Path) -> None:
        with open_single(path) as file:
            stated = read_digests(file)
            assert stated is not None
            assert list(stated.tensors) == [name for name in file if name != DIGESTS]
            for name, digest in stated.tensors.items():
                assert digest == hashlib.sha256(file[name].raw).digest(), name
            for name, digest in stated.sections.items():
                assert digest == hashlib.sha256(file.section(name) or b"").digest(), name
            assert "directory" in stated.sections
        assert problems(path) == []

    def test_of_the_built_file(self, path: Path) -> None:
        self.check(path)

    @pytest.mark.parametrize(
        "change",
        [
            {"add": [tensor("t"), tensor("u", 0)]},
            {"remove": ["model.norm.weight"]},
            {"add": [tensor("model.norm.weight", 10)], "remove": ["model.norm.weight"]},
            {"masks": OTHER_MASKS},
            {"masks": b""},
            {"header": lambda fields: {**fields, "x": 1}},
            {"header": header(x=1), "add": [tensor("v")]},
        ],
        ids=["add", "remove", "replace", "masks", "no-masks", "header", "both"],
    )
    def test_cover_the_new_content(self, path: Path, change: dict[str, object]) -> None:
        grow(path, **change)
        self.check(path)

    def test_go_when_their_tensor_is_removed(self, path: Path) -> None:
        grow(path, remove=[DIGESTS])
        with open_single(path) as file:
            assert "digests" not in file.header
            assert DIGESTS not in file


def with_digests(made: Cmf) -> Cmf:
    """The same file with digests, built without the package's code."""
    rows = b"".join(hashlib.sha256(t.payload).digest() for t in made.tensors)
    tensors = [*made.tensors, T(DIGESTS, U8, (len(made.tensors), 32), rows)]
    sections = {n: hashlib.sha256(getattr(made, n)).hexdigest() for n in ("masks", "vocab", "index")}
    field = {"alg": "sha256", "tensor": DIGESTS, "sections": {**sections, "directory": "0" * 64}}
    sized = made.with_tensors(*tensors).with_header(digests=field)
    field["sections"]["directory"] = hashlib.sha256(sized.section("dir")).hexdigest()
    return sized.with_header(digests=field)


@pytest.mark.parametrize(
    ("change", "kind", "code"),
    [
        ({"remove": ["none"]}, MissingTensor, "name"),
        ({"add": [tensor("model.norm.weight")]}, Parse, "name_dup"),
        ({"add": [tensor("t"), tensor("t")]}, Parse, "name_dup"),
        ({"add": [tensor("")]}, Parse, "name_empty"),
        ({"add": [TensorSpec("t", 5, (1,), 1, [b"x"])]}, Parse, "dtype"),
        ({"add": [TensorSpec("t", U8, (2,), 2, [b"x"])]}, UsageError, "payload"),
        ({"add": [TensorSpec("t", U8, (1,), 1, [b"x"], hash=1)]}, HashMismatch, "tensor"),
        ({"header": {"quant_type": "F16"}}, Parse, "arch"),
        ({"header": header(skills=[{"id": "a", "base_dir_hash": "1"}])}, UsageError, "skill_file"),
        ({"header": header(shard={"no": 1, "count": 2})}, UsageError, "shards"),
        ({"header": header(x=float("nan"))}, Parse, "json"),
    ],
)
def test_refusals_leave_the_file_as_it_is(
    path: Path, change: dict[str, object], kind: type[Exception], code: str
) -> None:
    before = path.read_bytes()
    with pytest.raises(kind) as caught:
        grow(path, **change)
    assert caught.value.code == code
    assert caught.value.path == str(path)
    assert path.read_bytes()[: len(before)] == before
    if code not in ("payload", "tensor"):  # those are known once a payload is read
        assert path.stat().st_size == len(before)


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"skills": [{"id": "a", "base_dir_hash": "1"}]}, "skill_file"), ({"shard": {"no": 1, "count": 2}}, "shards")],
)
def test_files_that_do_not_grow(tmp_path: Path, fields: dict[str, object], code: str) -> None:
    made = two_layers().with_header(**fields)
    path = made.set("features", 0b1000011 if code == "skill_file" else 0b11).save(tmp_path / "x.cmf")
    with pytest.raises(UsageError) as caught:
        grow(path, add=[tensor("t")])
    assert caught.value.code == code


def test_an_invalid_file_does_not_grow(tmp_path: Path) -> None:
    path = two_layers().set("dir_hash", 1).save(tmp_path / "x.cmf")
    with pytest.raises(HashMismatch, match="cortiq repair"):
        grow(path, add=[tensor("t")])
    (tmp_path / "empty.cmf").write_bytes(b"")
    with pytest.raises(FormatError):
        grow(tmp_path / "empty.cmf", add=[tensor("t")])


def test_a_producer_that_fails(path: Path) -> None:
    def fail():
        yield bytes(10)
        raise KeyboardInterrupt

    before = state_of(path)
    with pytest.raises(KeyboardInterrupt):
        grow(path, add=[TensorSpec("t", U8, (20,), 20, fail())])
    assert state_of(path) == before
    grow(path, add=[tensor("t")])
    assert problems(path) == []


def test_a_full_disk_is_known_before_anything_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    before = path.read_bytes()
    with pytest.raises(OSError, match="No space"):
        grow(path, add=[tensor("t")])
    assert path.read_bytes() == before


def test_a_file_system_without_fallocate(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", fail)
    grow(path, add=[tensor("t")])
    assert problems(path) == []


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file of 600 MiB, most of it a hole."""
    nbytes = 600 * MIB
    made = Cmf(header(tokenizer_config={"chat_template": "x" * 4000}), [T("big", U8, (64,), bytes(64))]).build()
    made.set_record(0, shape=(nbytes,), nbytes=nbytes).set("data_len", nbytes).rehash()
    path = made.save(tmp_path / "large.cmf")
    os.truncate(path, made.get("data_off") + nbytes)
    return path


def test_bytes_written(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def written(operation: object, *arguments: object, **more: object) -> int:
        disk = Recorder()
        install(monkeypatch, disk)
        operation(*arguments, **more)  # type: ignore[operator]
        return disk.written

    payload = np.zeros(5 * MIB, np.uint8)
    spec = TensorSpec("extra.a.big", U8, (5 * MIB,), 5 * MIB, [payload])
    assert 5 * MIB < written(grow, large, add=[spec], header=registered("a")) <= 5.5 * MIB
    assert written(edit_header, large, {"tokenizer_config.chat_template": "y" * 4000}) < 64 << 10
    assert written(undo, large) < 1024
    assert written(undo, large) < 1024
    with open_single(large) as file:
        assert list(file) == ["big"]


def test_an_open_file_verifies_while_it_grows(path: Path) -> None:
    with open_single(path) as file:
        grow(path, add=[tensor("t")])
        assert verify(file, strict=True).ok
        os.truncate(path, file.size - 1)
        with pytest.raises(Changed):
            verify(file)
