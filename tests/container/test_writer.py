"""Writing: layout, hashes, checks before and during, and that a target is never half a file."""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from itertools import pairwise

import numpy as np
import pytest

from builders.cmf import ARCH, Cmf, T, header
from builders.mask_sections import section
from cortiq.container import TensorSpec, copy, open_single, record_layout, verify, write_file
from cortiq.container.output import AtomicFile
from cortiq.errors import Bounds, HashMismatch, Parse, UsageError

F16, F32, Q8_ROW, U8, Q8_2F = 1, 0, 3, 6, 9


def spec(name: str = "a", nbytes: int = 64, **changes: object) -> TensorSpec:
    facts = {"dtype": U8, "shape": (nbytes,), "nbytes": nbytes, "chunks": [bytes(range(256)) * nbytes][:1]}
    facts["chunks"] = [(bytes(range(256)) * (nbytes // 256 + 1))[:nbytes]]
    return TensorSpec(**{"name": name, **facts, **changes})


def written(tmp_path, tensors, fields=None, **sections):
    path = tmp_path / "out.cmf"
    write_file(path, fields or header(), tensors, digests=False, **sections)
    return open_single(path)


def test_fresh_layout(tmp_path):
    sizes = (100, 16383, 16384, 1, 0, 50_000)
    tensors = [spec(f"t{i}", n) for i, n in enumerate(sizes)]
    with written(tmp_path, tensors, vocab=b"v" * 33, masks=section(), index=bytes(8)) as file:
        envelope = file.envelope
        assert envelope.header.offset == 128
        assert envelope.directory.offset == envelope.header.end
        assert envelope.data.offset == -(-envelope.directory.end // 4096) * 4096
        assert [entry.off for entry in file.tensors.values()] == [0, 128, 20480, 36864, 36928, 40960]
        assert envelope.data.nbytes == 40960 + 50_000
        assert envelope.masks.offset == envelope.data.end
        assert envelope.vocab.offset == envelope.masks.end
        assert envelope.index.offset == envelope.vocab.end
        assert file.size == envelope.index.end
        report = verify(file, strict=True, require_hashes=True)
        assert [problem.kind for problem in report.problems] == []


def test_absent_sections_are_zero(tmp_path):
    with written(tmp_path, [spec()]) as file:
        assert [file.envelope.section(name).offset for name in ("masks", "vocab", "index")] == [0, 0, 0]
        assert "section_hashes" not in file.header
        assert file.envelope.flags == 0


def test_no_tensors(tmp_path):
    with written(tmp_path, []) as file:
        assert len(file) == 0
        assert verify(file, strict=True).ok


def test_header_is_filled_in(tmp_path):
    fields = {"arch": ARCH, "quant_type": "Q8_ROW", "section_hashes": {"masks": "1"}, "extra": "ä"}
    with written(tmp_path, [spec()], fields, vocab=b"{}") as file:
        assert list(file.header) == ["format", "version", "arch", "quant_type", "extra", "section_hashes"]
        assert list(file.header["section_hashes"]) == ["vocab"]
        assert file.header["section_hashes"]["vocab"] == f"{file.header.section_hashes['vocab']:016x}"
        assert "ä".encode() in file.header.raw
        assert b": " not in file.header.raw


@pytest.mark.parametrize(
    ("dtype", "masks", "arch", "skills", "bits"),
    [
        (U8, None, {}, [], 0b1),
        (U8, section(), {}, [], 0b11),
        (Q8_2F, None, {}, [], 0b101),
        (U8, section(), {"num_loops": 2}, [], 0b100011),
        (U8, None, {"num_loops": 2}, [], 0b1),
        (U8, None, {}, [{"id": "a", "base_dir_hash": "1"}], 0b1000001),
    ],
)
def test_features(tmp_path, dtype, masks, arch, skills, bits):
    tensor = spec() if dtype == U8 else spec(nbytes=12, dtype=Q8_2F, shape=(2, 2))
    fields = header(arch={**ARCH, **arch}, skills=skills)
    with written(tmp_path, [tensor], fields, masks=masks) as file:
        assert file.envelope.features == bits


@pytest.mark.parametrize("lengths", [(64,), (1,) * 64, (7, 9, 3, 45), (0, 64, 0), (8, 13, 43), (63, 1)])
def test_chunks_of_any_length(tmp_path, lengths):
    content = bytes(range(64))
    cuts = np.cumsum((0, *lengths))
    chunks = (content[a:b] for a, b in pairwise(cuts))
    with written(tmp_path, [spec(chunks=chunks)]) as file:
        assert bytes(file["a"].raw) == content
        assert verify(file).ok


def test_chunks_of_arrays(tmp_path):
    values = np.arange(12, dtype=np.float16).reshape(3, 4)
    chunks = [
        values[:1],
        np.asfortranarray(values[1:2]),
        memoryview(values[2:].tobytes()),
        np.zeros((0, 4), np.float16),
    ]
    with written(tmp_path, [spec(dtype=F16, shape=(3, 4), nbytes=24, chunks=chunks)]) as file:
        assert np.array_equal(file["a"].numpy(), values)


def test_producers_run_in_order_when_their_turn_comes(tmp_path):
    order = []

    def produce(name):
        order.append(name)
        yield bytes(64)

    written(tmp_path, [spec(name, chunks=produce(name)) for name in "cab"]).close()
    assert order == ["c", "a", "b"]


@pytest.mark.parametrize("lengths", [(63,), (65,), (64, 1), ()])
def test_payload_of_another_size(tmp_path, lengths):
    with pytest.raises(UsageError, match="payload") as caught:
        written(tmp_path, [spec(chunks=[bytes(n) for n in lengths])])
    assert caught.value.tensor == "a"
    assert os.listdir(tmp_path) == []


def test_payload_with_another_hash(tmp_path):
    with pytest.raises(HashMismatch):
        written(tmp_path, [spec(hash=1)])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("tensors", "kind", "code"),
    [
        ([spec("")], Parse, "name_empty"),
        ([spec("a\n")], Parse, "name_ctrl"),
        ([spec("\ud800")], Parse, "name_utf8"),
        ([spec("x" * 65_536)], Bounds, "name"),
        ([spec("a"), spec("a")], Parse, "name_dup"),
        ([spec(dtype=5)], Parse, "dtype"),
        ([spec(shape=(3,))], Bounds, "nbytes"),
        ([spec(dtype=Q8_ROW, shape=(64,))], Parse, "ndim_dtype"),
        ([spec(shape=(1,) * 7)], Parse, "ndim"),
    ],
)
def test_tensors_a_reader_would_refuse(tmp_path, tensors, kind, code):
    with pytest.raises(kind) as caught:
        written(tmp_path, tensors)
    assert caught.value.code == code
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"quant_type": "F16"}, "arch"),
        ({"arch": ARCH}, "header_field"),
        (header(quant_type="Q4TP"), "header_field"),
        (header(version=3), "header_field"),
        (header(x=float("nan")), "json"),
        (header(x=object()), "json"),
        (header(tokenizer_config={"eos_token_ids": [10**6]}), "chat"),
    ],
)
def test_headers_a_reader_would_refuse(tmp_path, fields, code):
    with pytest.raises(Parse) as caught:
        written(tmp_path, [spec()], fields)
    assert caught.value.code == code
    assert os.listdir(tmp_path) == []


def test_shard_name_is_for_shards(tmp_path):
    path = tmp_path / "x-00001-of-00002.cmf"
    with pytest.raises(UsageError, match="shard_name"):
        write_file(path, header(), [spec()])
    write_file(path, header(shard={"no": 1, "count": 2}), [spec()])


def test_equal_input_gives_equal_bytes(tmp_path):
    one, two = tmp_path / "1.cmf", tmp_path / "2.cmf"
    for path in (one, two):
        write_file(path, header(), [spec("a", 100), spec("b", 20_000)], vocab=b"{}")
    assert one.read_bytes() == two.read_bytes()


def test_copy_of_a_file_with_every_section(cmf, opened, tmp_path):
    copy(opened(cmf), tmp_path / "copy.cmf")
    assert (tmp_path / "copy.cmf").read_bytes() == cmf.data


@pytest.mark.parametrize("change", ["gap", "residue", "tail", "unhashed", "flags", "order", "pool"])
def test_copy_of_odd_files(cmf, opened, tmp_path, change):
    start = cmf.get("data_off")
    if change == "residue":
        cmf.put(start - 1, b"x")
    elif change == "tail":
        cmf.data += bytes(999) + b"x"
    elif change == "unhashed":
        cmf.set("header_hash", 0).set("dir_hash", 0)
    elif change == "flags":
        cmf.set("flags", 7)
    elif change == "gap":
        cmf.data[start:start] = bytes(8192)
        for name in ("data", "masks", "vocab", "index"):
            cmf.set(f"{name}_off", cmf.get(f"{name}_off") + 8192)
    elif change == "order":
        a, b = cmf.get_record(1, "off"), cmf.get_record(5, "off")
        one, other = cmf.payload(1), cmf.payload(5)
        cmf.put(start + a, other).put(start + b, one).set_record(1, off=b).set_record(5, off=a).rehash()
    elif change == "pool":
        cmf.set_record(1, name_off=0, name_len=11).rehash()
    copy(opened(cmf), tmp_path / "copy.cmf")
    assert (tmp_path / "copy.cmf").read_bytes() == cmf.data


@pytest.mark.parametrize("masks", [b"m", section()[:-1], bytes(8)])
def test_masks_a_reader_would_refuse(tmp_path, masks):
    with pytest.raises((Bounds, Parse)) as caught:
        write_file(tmp_path / "x.cmf", header(), [spec()], masks=masks)
    assert caught.value.section == "masks"
    assert not list(tmp_path.iterdir())


def test_copy_refuses_aliases(opened, tmp_path):
    made = Cmf(header(), [T("a", F16, (32,), bytes(64)), T("b", F16, (32,), bytes(64))]).build()
    with pytest.raises(UsageError, match="alias"):
        copy(opened(made.set_record(1, off=0).rehash()), tmp_path / "copy.cmf")


def test_copy_refuses_damage(cmf, opened, tmp_path):
    at = cmf.get("data_off") + 5
    with pytest.raises(HashMismatch) as caught:
        copy(opened(cmf.put(at, bytes([cmf.data[at] ^ 1]))), tmp_path / "copy.cmf")
    assert caught.value.tensor == "model.embed_tokens.weight"
    assert not (tmp_path / "copy.cmf").exists()


@pytest.mark.parametrize("what", ["tensors", "header", "vocab"])
def test_layout_of_another_file(cmf, opened, tmp_path, what):
    file = opened(cmf)
    specs = [TensorSpec(n, e.dtype, e.shape, e.nbytes, [file[n].raw]) for n, e in file.tensors.items()]
    fields, vocab = file.header, cmf.vocab
    if what == "tensors":
        specs.pop()
    elif what == "header":
        fields = header()
    else:
        vocab = b"{}"
    with pytest.raises((UsageError, HashMismatch)):
        write_file(
            tmp_path / "x.cmf", fields, specs, vocab=vocab, masks=cmf.masks, index=cmf.index, layout=record_layout(file)
        )
    assert not (tmp_path / "x.cmf").exists()


class TestTarget:
    """The file under the target's name (SPEC's writers replace it whole)."""

    def test_kept_when_a_producer_fails(self, tmp_path):
        def fail():
            yield bytes(32)
            raise KeyboardInterrupt

        path = tmp_path / "out.cmf"
        path.write_bytes(b"old")
        with pytest.raises(KeyboardInterrupt):
            write_file(path, header(), [spec("a"), spec("b", chunks=fail())])
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["out.cmf"]

    @pytest.mark.parametrize("call", ["posix_fallocate", "pwrite", "fsync", "rename", "fchmod", "ftruncate"])
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
    def test_kept_when_a_system_call_fails(self, tmp_path, monkeypatch, call, number):
        def fail(*_):
            raise OSError(number, os.strerror(number))

        path = tmp_path / "out.cmf"
        path.write_bytes(b"old")
        monkeypatch.setattr(os, call, fail)
        with pytest.raises(OSError, match=os.strerror(number)):
            write_file(path, header(), [spec()])
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["out.cmf"]

    def test_short_writes_go_on(self, tmp_path, monkeypatch):
        real = os.pwrite
        monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[: max(1, len(data) // 3)], at))
        with written(tmp_path, [spec("a", 1000)], vocab=b"{}") as file:
            assert verify(file).ok

    def test_file_system_without_fallocate(self, tmp_path, monkeypatch):
        def fail(*_):
            raise OSError(errno.EOPNOTSUPP, "not supported")

        monkeypatch.setattr(os, "posix_fallocate", fail)
        written(tmp_path, [spec()]).close()

    def test_order_of_calls(self, tmp_path, monkeypatch):
        """Envelope last, then sync, rename, sync of the folder."""
        calls = []
        for name in ("pwrite", "fsync", "rename"):
            real = getattr(os, name)

            def record(*args, name=name, real=real):
                folder = name == "fsync" and stat.S_ISDIR(os.fstat(args[0]).st_mode)
                calls.append((name, args[2]) if name == "pwrite" else f"{name} folder" if folder else name)
                return real(*args)

            monkeypatch.setattr(os, name, record)
        write_file(tmp_path / "out.cmf", header(), [spec()], vocab=b"{}")
        assert calls[-4:] == [("pwrite", 0), "fsync", "rename", "fsync folder"]
        assert ("pwrite", 0) not in calls[:-4]

    def test_mapped_source_may_be_the_target(self, cmf, tmp_path):
        path = cmf.save(tmp_path / "model.cmf")
        with open_single(path) as file:
            copy(file, path)
            assert verify(file).problems == ()
        assert path.read_bytes() == cmf.data

    def test_symbolic_link_is_replaced(self, tmp_path):
        (tmp_path / "real").write_bytes(b"old")
        (tmp_path / "out.cmf").symlink_to(tmp_path / "real")
        written(tmp_path, [spec()]).close()
        assert not (tmp_path / "out.cmf").is_symlink()
        assert (tmp_path / "real").read_bytes() == b"old"

    def test_permissions(self, tmp_path):
        old = os.umask(0o027)
        try:
            written(tmp_path, [spec()]).close()
        finally:
            os.umask(old)
        path = tmp_path / "out.cmf"
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        written(tmp_path, [spec()]).close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o604

    def test_folder_is_no_target(self, tmp_path):
        with pytest.raises(IsADirectoryError):
            write_file(tmp_path, header(), [spec()])

    def test_missing_folder(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            write_file(tmp_path / "none" / "out.cmf", header(), [spec()])

    def test_stale_temporary_files_are_removed(self, tmp_path):
        dead = 2**22 + 1  # above the largest process id
        names = {f".out.cmf.tmp.{dead}.{'0' * 8}": 0.0, f".out.cmf.tmp.{dead}.{'1' * 8}": time.time()}
        names |= {f".out.cmf.tmp.{os.getpid()}.{'2' * 8}": 0.0, f".other.cmf.tmp.{dead}.{'3' * 8}": 0.0}
        for name, when in names.items():
            (tmp_path / name).write_bytes(b"")
            os.utime(tmp_path / name, (when, when))
        written(tmp_path, [spec()]).close()
        assert sorted(os.listdir(tmp_path)) == sorted(["out.cmf", *list(names)[1:]])

    def test_discarded_without_commit(self, tmp_path):
        with AtomicFile(tmp_path / "x") as output:
            output.write_at(0, memoryview(b"abc"))
            assert json.dumps(os.listdir(tmp_path)).count("tmp") == 1
        assert os.listdir(tmp_path) == []
