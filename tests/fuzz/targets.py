"""What is fuzzed: functions of bytes that return for every input, or have found something.

``TARGETS`` names them; each also says what inputs to begin with and how to make one from another.
The same functions run under a coverage-guided fuzzer (``fuzz.guided``) and, with a fixed seed, in the tests.
"""

from __future__ import annotations

import atexit
import json
import random
import struct
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import safetensors

import cmf_reader
from builders.cmf import U8, two_layers
from builders.mutant_values import HEADER_EDITS, TOKENS
from builders.mutants import mutate
from builders.small_files import SMALL_FILES, small_file
from builders.weights import heavy_tailed
from cortiq.container import File, open_single
from cortiq.container.header import parse_header
from cortiq.container.mask_meta import COUNTS_NBYTES, meta_nbytes, parse_mask_meta
from cortiq.container.masks import decode_masks
from cortiq.container.signature import check_signature
from cortiq.container.sparse_index import check_sparse_index, parse_sparse_index
from cortiq.container.strict_json import parse_json
from cortiq.convert.families import TensorRule
from cortiq.convert.sources.gguf_file import GgufFile
from cortiq.convert.sources.safetensors_file import DTYPES, SafetensorsFile
from cortiq.errors import FormatError, Signature, SourceError
from cortiq.layouts import LAYOUTS
from fuzz.memory_file import MemoryFile
from fuzz.oracle import accepts, examine, refused_lazily

COMPARED = 16
STACKED = 0.1


@dataclass(frozen=True, slots=True)
class Target:
    """``run`` raises when it has found something; ``seeds`` makes inputs; ``change`` makes an input from another."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    change: Callable[[bytes, random.Random], bytes]


def whole_file(data: bytes) -> None:
    """A file of any bytes; now and then also for the stand-alone reader."""
    turn = zlib.crc32(data)
    path = _memory().put(data)
    examine(path, turn)
    if turn % COMPARED == 0:
        assert accepts(path) != refused_lazily(path)


def json_text(data: bytes) -> None:
    """A header of any bytes: read as JSON exactly when the stand-alone reader does, and then a header or refused."""
    package, reader = True, True
    try:
        parse_json(data, section="header", offset=0)
    except FormatError:
        package = False
    try:
        cmf_reader.parse_json(data)
    except cmf_reader.CmfError:
        reader = False
    assert package == reader
    if package:
        _refusing(lambda: parse_header(data, 0))


def sections(data: bytes) -> None:
    """Masks, or a sparse index, of any bytes."""
    file, content = _model(), memoryview(data)[1:]
    if data[:1] < b"\x80":
        _refusing(lambda: _read_masks(file, content))
    else:
        _refusing(lambda: list(check_sparse_index(parse_sparse_index(content, 0), file.arch, file.masks, 0)))


def signature(data: bytes) -> None:
    """A signature of any bytes beside a file."""
    file = _model()
    Path(f"{file.path}.sig").write_bytes(data)
    try:
        check_signature(file)
    except Signature as error:
        _one_of(error.code, "parse", "alg", "digest", "invalid")


def safetensors_file(data: bytes) -> None:
    """What is read, the safetensors package reads too, with the same bytes."""
    try:
        file = SafetensorsFile(_memory().put(data))
    except SourceError as error:
        _one_of(error.code, "safetensors", "open")
        return
    theirs = dict(safetensors.deserialize(data))
    assert set(theirs) == set(file.records)
    for name, record in file.records.items():
        assert tuple(theirs[name]["shape"]) == record.shape
        if record.dtype in DTYPES and len(record.shape) in (1, 2) and record.nbytes:
            tensor = file.tensor(name, name, TensorRule(name, "", ""))
            read = tensor.read(0, tensor.matrix_shape[0])
            assert np.ascontiguousarray(read).tobytes() == bytes(theirs[name]["data"])
    file.close()


def gguf_file(data: bytes) -> None:
    """Metadata and directory of a GGUF: everything lies inside the file, or it is refused."""
    try:
        file = GgufFile(_memory().put(data))
    except SourceError as error:
        _one_of(error.code, "gguf", "gguf_version", "ggml_type", "open")
        return
    for record in file.records.values():
        assert 0 <= record.offset <= record.offset + record.nbytes <= len(data)
    file.close()


def change_file(data: bytes, rng: random.Random) -> bytes:
    """The structure-aware mutator, of this file while it can still be opened or of a fresh one."""
    intact = rng.random() < STACKED and _is_whole(_memory().put(data))
    return mutate([data] if intact else _small(), rng)


def _is_whole(path: Path) -> bool:
    """Whether there is a file with tensors to be damaged."""
    if refused_lazily(path):
        return False
    with open_single(path) as file:
        return len(file) > 0


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bits, bytes, tokens and pieces."""
    made = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(made))
        choice = rng.randrange(6)
        if choice == 0:
            made[at] ^= 1 << rng.randrange(8)
        elif choice == 1:
            made[at : at + 8] = struct.pack(
                "<Q", rng.choice((0, 1, 2**31, 2**32, 2**63, 2**64 - 1, rng.getrandbits(64)))
            )
        elif choice == 2:
            made[at:at] = rng.choice(TOKENS)
        elif choice == 3:
            token = rng.choice(TOKENS)
            made[at : at + len(token)] = token
        elif choice == 4:
            del made[at : at + rng.choice((1, 4, 16))]
        else:
            piece = made[at : at + rng.choice((4, 16, 64))]
            to = rng.randrange(len(made))
            made[to:to] = piece
        made = made or bytearray(1)
    return bytes(made)


def change_json(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return rng.choice(HEADER_EDITS)(data.decode("utf-8", "ignore"), rng)
    return change_bytes(data, rng)


def change_safetensors(data: bytes, rng: random.Random) -> bytes:
    """The header as text, with its length made right again."""
    length = int.from_bytes(data[:8], "little")
    if length > len(data) - 8 or rng.random() < 0.2:
        return change_bytes(data, rng)
    header, payload = change_json(data[8 : 8 + length], rng), data[8 + length :]
    return struct.pack("<Q", len(header)) + header + payload


def _read_masks(file: File, content: memoryview) -> None:
    if len(content) < COUNTS_NBYTES:
        content = memoryview(bytes(COUNTS_NBYTES))
    end = meta_nbytes(bytes(content[:COUNTS_NBYTES]), len(content), 0)
    meta = parse_mask_meta(bytes(content[:end]), len(content), file.arch, 0)
    for mask in decode_masks(content, meta, 0).values():
        mask.inactive_shares()


def _refusing(read: Callable[[], object]) -> None:
    try:
        read()
    except FormatError as error:
        if not error.code:
            raise AssertionError("an error without a code") from error


def _one_of(code: str, *codes: str) -> None:
    if code not in codes:
        raise AssertionError(f"an error of another kind: {code!r}")


@cache
def _memory() -> MemoryFile:
    return MemoryFile()


@cache
def _small() -> list[bytes]:
    return [small_file(name) for name in SMALL_FILES]


@cache
def _model() -> File:
    """A file on disk, for what lies beside it."""
    folder = tempfile.TemporaryDirectory(prefix="fuzz")
    file = open_single(two_layers().save(Path(folder.name) / "model.cmf"))
    atexit.register(folder.cleanup)
    atexit.register(file.close)
    return file


def _json_seeds() -> list[bytes]:
    header = json.dumps(two_layers().header).encode()
    return [header, b"{}", b"[1.5, -0.0, 1e5]", b'{"a": {"b": [null, true, "\\ud83d\\ude00"]}}']


def _section_seeds() -> list[bytes]:
    made = two_layers()
    return [b"\0" + made.masks, b"\xff" + made.index]


def _signature_seeds() -> list[bytes]:
    data = Path(__file__).parents[1] / "data" / "container" / "signed.cmf.sig"
    return [data.read_bytes(), b'{"alg": "ed25519-sha256"}']


def _safetensors_seeds() -> list[bytes]:
    seeds = []
    for tensors in (
        {"a": ("F32", [2, 2], 16), "b": ("F16", [4], 8)},
        {"a": ("BF16", [3, 1], 6), "empty": ("F32", [0], 0), "scalar": ("I64", [], 8)},
    ):
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        end = 0
        for name, (dtype, shape, nbytes) in tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + nbytes]}
            end += nbytes
        text = json.dumps(header).encode()
        seeds.append(struct.pack("<Q", len(text)) + text + bytes(range(end)))
    return seeds


def _gguf_seeds() -> list[bytes]:
    def text(value: bytes) -> bytes:
        return struct.pack("<Q", len(value)) + value

    array = struct.pack("<IIQ", 9, 8, 2) + text(b"a") + text(b"bc")
    numbers = struct.pack("<IIQ", 9, 4, 3) + struct.pack("<3I", 1, 2, 3)
    keys = [
        text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama"),
        text(b"general.alignment") + struct.pack("<II", 4, 32),
        text(b"tokenizer.ggml.tokens") + array,
        text(b"tokenizer.ggml.token_type") + numbers,
        text(b"llama.rope.freq_base") + struct.pack("<If", 6, 1e4),
    ]
    infos = [
        text(b"token_embd.weight") + struct.pack("<IQQIQ", 2, 32, 2, 8, 0),
        text(b"output_norm.weight") + struct.pack("<IQIQ", 1, 8, 0, 96),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join((*keys, *infos))
    return [head + bytes(-len(head) % 32) + bytes(96) + bytes(range(32)), b"GGUF" + struct.pack("<IQQ", 3, 0, 0)]


def native_seeds(name: str) -> list[bytes]:
    """Inputs of the harnesses of csrc/fuzz: a payload of each dtype, and bytes to hash."""
    if name != "decode":
        return [b"\x01\x02" + bytes(range(200))]
    seeds = []
    for kind in LAYOUTS.values():
        if kind.id != U8:
            for what, (rows, groups) in enumerate(((1, 1), (3, 2), (4, 3))):
                payload = kind.encode(heavy_tailed(rows, 32 * groups))
                seeds.append(bytes([kind.id, rows - 1, groups - 1, what]) + payload)
    return seeds


TARGETS = {
    "whole_file": Target(whole_file, _small, change_file),
    "json_text": Target(json_text, _json_seeds, change_json),
    "sections": Target(sections, _section_seeds, change_bytes),
    "signature": Target(signature, _signature_seeds, change_json),
    "safetensors_file": Target(safetensors_file, _safetensors_seeds, change_safetensors),
    "gguf_file": Target(gguf_file, _gguf_seeds, change_bytes),
}
