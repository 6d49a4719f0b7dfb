"""Opening: what is not touched, what is kept, and what the handle promises."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cortiq.container
from builders.cmf import F16, Cmf, T, header
from builders.residency import resident_pages
from cortiq.container import hashing, open_single, verify
from cortiq.errors import Changed, MissingTensor, UsageError


def test_no_page_of_the_blob_is_touched(tmp_path):
    """A blob of 64 MiB on disk, out of the cache, stays out of it."""
    made = Cmf(header(), [T(f"t{i}", F16, (1 << 20,), b"") for i in range(32)]).build()
    for i in range(32):
        made.set_record(i, off=i << 21, nbytes=1 << 21)
    path = made.set("data_len", 32 << 21).rehash().save(tmp_path / "big.cmf")
    blob = made.get("data_off")
    with path.open("r+b") as stream:
        stream.seek(blob)
        for _ in range(64):
            stream.write(b"x" * (1 << 20))
        stream.flush()
        os.fsync(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before = resident_pages(path, blob)
    if before is None or before:
        pytest.skip(f"the page cache cannot be observed or dropped here ({before} pages resident)")
    with open_single(path) as file:
        assert len(file) == 32
        assert resident_pages(path, blob) == 0
        assert file["t0"].raw[0] == ord("x")
        assert resident_pages(path, blob) > 0


def test_file_is_immutable(cmf, opened):
    file = opened(cmf)
    entry = file["model.norm.weight"].entry
    parts = [(file, "path"), (file.header, "raw"), (file.arch, "arch_name"), (file.envelope, "flags")]
    for target, field in (*parts, (entry, "name"), (file.tensors, "raw"), (file.header.chat, "chat_template")):
        with pytest.raises(AttributeError):
            setattr(target, field, None)
    with pytest.raises(TypeError):
        file.header["arch"]["hidden_size"] = 1
    with pytest.raises(TypeError):
        file.tensors["x"] = 1
    assert file["model.norm.weight"].raw.readonly
    assert not file["model.norm.weight"].numpy().flags.writeable
    copied = file.tokenizer_config
    copied["eos_token_ids"].append(3)
    assert file.tokenizer_config["eos_token_ids"] == [2]


def test_replaced_file_keeps_its_old_content(cmf, tmp_path):
    path = cmf.save(tmp_path / "model.cmf")
    with open_single(path) as file:
        other = cmf.with_arch(arch_name="other").put(cmf.get("data_off"), b"\x55" * 64)
        os.replace(other.save(tmp_path / "other.cmf"), path)
        assert file.arch.arch_name == "llama"
        assert verify(file).ok
        path.unlink()
        assert bytes(file["model.norm.weight"].raw) == cmf.tensors[1].payload


def test_modified_file_is_noticed(cmf, tmp_path):
    path = cmf.save(tmp_path / "model.cmf")
    with open_single(path) as file:
        os.utime(path, ns=(1, 1))
        with pytest.raises(Changed, match="modified"):
            verify(file)


def test_truncated_file_is_noticed_before_it_is_read(cmf, tmp_path):
    path = cmf.save(tmp_path / "model.cmf")
    with open_single(path) as file:
        os.truncate(path, 128)
        with pytest.raises(Changed):
            verify(file)


def test_views_outlive_close(cmf, opened):
    file = opened(cmf)
    raw, values = file["model.norm.weight"].raw, file["model.norm.weight"].numpy()
    file.close()
    file.close()
    assert file.closed
    assert bytes(raw) == cmf.tensors[1].payload == values.tobytes()
    with pytest.raises(UsageError, match="closed"):
        _ = file["model.norm.weight"]
    with pytest.raises(UsageError, match="closed"):
        _ = file.tokenizer_json


def test_addresses_are_those_of_the_bytes(cmf, opened):
    file = opened(cmf)
    for i, (name, entry) in enumerate(file.tensors.items()):
        assert ctypes.string_at(file.address(entry), entry.nbytes) == cmf.tensors[i].payload
        assert file.address(entry) % 64 == 0
        assert np.frombuffer(file[name].raw, np.uint8).ctypes.data == file.address(entry)
        assert file.map_end(entry) - file.mapping.address == file.size == len(cmf.data)


def test_tensors_by_name_in_directory_order(cmf, opened):
    file = opened(cmf)
    assert list(file) == [tensor.name for tensor in cmf.tensors]
    entry = file.tensors["model.embed_tokens.weight"]
    assert (entry.dtype, entry.shape, entry.off, entry.nbytes) == (3, (40, 64), 0, 40 * 66)
    assert file.tensors.at(0) == entry
    assert "nothing" not in file
    with pytest.raises(MissingTensor):
        _ = file["nothing"]


def test_numpy_of_each_kind(cmf, opened):
    file = opened(cmf)
    assert file["model.norm.weight"].numpy().dtype == np.float16
    assert file["model.layers.1.mlp.gate_proj.weight"].numpy().dtype == np.float32
    bias = file["model.layers.1.self_attn.q_proj.bias"].numpy()
    words = np.frombuffer(cmf.tensors[5].payload, "<u2").astype(np.uint32) << 16
    assert bias.dtype == np.float32
    assert bias.tobytes() == words.tobytes()
    assert file["model.embed_tokens.weight"].numpy().dtype == np.float32


def test_tokenizer_and_generation_blocks(cmf, opened):
    file = opened(cmf.with_header(generation_config={"temperature": 0.2}))
    assert file.tokenizer_json == cmf.vocab
    assert file.generation == {"temperature": 0.2}
    assert opened(cmf).generation is None
    assert opened(Cmf(header(), []).build()).tokenizer_json is None


@pytest.mark.parametrize("what", ["folder", "pipe", "device"])
def test_only_regular_files_are_opened(tmp_path, what):
    path = {"folder": tmp_path, "pipe": tmp_path / "pipe", "device": Path("/dev/zero")}[what]
    if what == "pipe":
        os.mkfifo(path)
    with pytest.raises(UsageError, match="not_regular"):
        open_single(path)


def test_missing_file_is_the_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        open_single(tmp_path / "none.cmf")


def test_symbolic_links_are_followed(cmf, tmp_path):
    (tmp_path / "link.cmf").symlink_to(cmf.save(tmp_path / "model.cmf"))
    with cortiq.container.open(tmp_path / "link.cmf") as file:
        assert len(file) == 6


def test_open_is_one_of_two_snapshots_when_the_file_grows_meanwhile(cmf, tmp_path, monkeypatch):
    """An envelope read before another process moved the header still leads to a valid file."""
    path = cmf.save(tmp_path / "model.cmf")
    stale = cmf.data[:112] + struct.pack("<QQ", 1, 2)
    answers = [bytes(stale)]
    real = os.pread

    def pread(fd, nbytes, offset):
        if nbytes == 128 and offset == 0 and answers:
            return answers.pop()
        return real(fd, nbytes, offset)

    monkeypatch.setattr(os, "pread", pread)
    with open_single(path) as file:
        assert file.arch.arch_name == "llama"


def test_without_the_native_core(monkeypatch, cmf, opened):
    monkeypatch.setattr(hashing, "native", None)
    assert verify(opened(cmf), threads=2).ok


def test_importing_is_light():
    """Nothing but numpy and the standard library, and nothing of the layers above."""
    code = """
import sys, numpy
before = set(sys.modules)
import cortiq.container
print(*sorted({name.split(".")[0] for name in set(sys.modules) - before}))
print(*sorted(name for name in sys.modules if name.startswith("cortiq.")))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    roots, modules = run.stdout.splitlines()
    assert not set(roots.split()) & {"ml_dtypes", "tokenizers", "jinja2", "gguf", "click", "concurrent", "safetensors"}
    assert {name.split(".")[1] for name in modules.split()} <= {"container", "layouts", "errors", "native", "_native"}
