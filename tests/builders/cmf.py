"""Builds small CMF files in memory, byte by byte from SPEC 1 and 3, to be damaged by tests.

It shares no code with the package but hash64, so that a mistake in the reader is not repeated here.
"""

from __future__ import annotations

import copy
import json
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cortiq.container.hash64 import hash64

ENVELOPE = {
    "magic": (0, "4s"),
    "version": (4, "<I"),
    "flags": (8, "<I"),
    "features": (12, "<I"),
    "header_off": (16, "<Q"),
    "header_len": (24, "<Q"),
    "dir_off": (32, "<Q"),
    "dir_len": (40, "<Q"),
    "data_off": (48, "<Q"),
    "data_len": (56, "<Q"),
    "masks_off": (64, "<Q"),
    "masks_len": (72, "<Q"),
    "vocab_off": (80, "<Q"),
    "vocab_len": (88, "<Q"),
    "index_off": (96, "<Q"),
    "index_len": (104, "<Q"),
    "header_hash": (112, "<Q"),
    "dir_hash": (120, "<Q"),
}
RECORD = {
    "name_off": (0, "<I"),
    "name_len": (4, "<H"),
    "dtype": (6, "<B"),
    "ndim": (7, "<B"),
    "shape": (8, "<6I"),
    "off": (32, "<Q"),
    "nbytes": (40, "<Q"),
    "hash": (48, "<Q"),
}
F32, F16, BF16, Q8_ROW, Q4_BLOCK, U8, VBIT, Q8_2F, VBIT_RO, Q4_TILED = 0, 1, 2, 3, 4, 6, 8, 9, 10, 11
Q1, Q1S, Q1T, Q4TP, Q2TP = 12, 13, 14, 15, 16


@dataclass(frozen=True)
class T:
    """A tensor. ``nbytes`` differs from the payload's size only where a test wants that."""

    name: str | bytes
    dtype: int
    shape: tuple[int, ...]
    payload: bytes

    @property
    def raw_name(self) -> bytes:
        return self.name.encode() if isinstance(self.name, str) else self.name


@dataclass
class Cmf:
    """The parts of a file; ``data`` holds the bytes once ``build`` has run."""

    header: dict[str, Any]
    tensors: list[T]
    masks: bytes = b""
    vocab: bytes = b""
    index: bytes = b""
    features: int = 1
    raw_header: bytes | None = None
    data: bytearray = field(default_factory=bytearray)

    def build(self) -> Cmf:
        """Lay out, hash, and keep the bytes in ``data``."""
        header = self.raw_header if self.raw_header is not None else self._header_bytes()
        directory, blob = self._directory()
        dir_off = 128 + len(header)
        data_off = -(-(dir_off + len(directory)) // 4096) * 4096
        values: dict[str, Any] = {"magic": b"CMF\x01", "version": 2, "flags": 0, "features": self.features}
        values |= {"header_off": 128, "header_len": len(header), "dir_off": dir_off, "dir_len": len(directory)}
        values |= {"data_off": data_off, "data_len": len(blob)}
        self.data = bytearray(128) + header + directory
        self.data += bytes(data_off - len(self.data)) + blob
        for name in ("masks", "vocab", "index"):
            content = getattr(self, name)
            values |= {f"{name}_off": len(self.data) if content else 0, f"{name}_len": len(content)}
            self.data += content
        for name, value in values.items():
            self.set(name, value)
        return self.rehash()

    def _header_bytes(self) -> bytes:
        header = copy.deepcopy(self.header)
        hashes = {n: f"{hash64(getattr(self, n)):016x}" for n in ("masks", "vocab", "index") if getattr(self, n)}
        if hashes:
            header.setdefault("section_hashes", hashes)
        return json.dumps(header).encode()

    def _directory(self) -> tuple[bytes, bytes]:
        records, pool, blob = b"", b"", b""
        for tensor in self.tensors:
            blob += bytes(-len(blob) % 64)
            shape = (*tensor.shape, *(0,) * (6 - len(tensor.shape)))
            name = tensor.raw_name
            records += struct.pack("<IHBB6I", len(pool), len(name), tensor.dtype, len(tensor.shape), *shape)
            records += struct.pack("<QQQ", len(blob), len(tensor.payload), hash64(tensor.payload))
            pool += name
            blob += tensor.payload
        return struct.pack("<QQ", len(self.tensors), 16 + len(records)) + records + pool, blob

    def get(self, name: str) -> Any:
        """A field of the envelope."""
        at, code = ENVELOPE[name]
        return struct.unpack_from(code, self.data, at)[0]

    def set(self, name: str, value: Any) -> Cmf:
        """Overwrite a field of the envelope."""
        at, code = ENVELOPE[name]
        struct.pack_into(code, self.data, at, value)
        return self

    def record(self, i: int) -> int:
        """Offset in the file of a directory record."""
        return int(self.get("dir_off")) + 16 + 56 * i

    def get_record(self, i: int, name: str) -> Any:
        """A field of a directory record."""
        at, code = RECORD[name]
        found = struct.unpack_from(code, self.data, self.record(i) + at)
        return found if name == "shape" else found[0]

    def set_record(self, i: int, **fields: Any) -> Cmf:
        """Overwrite fields of a directory record; ``shape`` is padded with zeros to six."""
        for name, value in fields.items():
            at, code = RECORD[name]
            values = (*value, *(0,) * (6 - len(value))) if name == "shape" else (value,)
            struct.pack_into(code, self.data, self.record(i) + at, *values)
        return self

    def set_counts(self, *, count: int | None = None, pool_off: int | None = None) -> Cmf:
        """Overwrite the two words at the head of the directory."""
        for at, value in ((0, count), (8, pool_off)):
            if value is not None:
                struct.pack_into("<Q", self.data, self.get("dir_off") + at, value)
        return self

    def put(self, at: int, content: bytes) -> Cmf:
        """Overwrite bytes."""
        self.data[at : at + len(content)] = content
        return self

    def section(self, name: str) -> bytes:
        """Bytes of ``header``, ``dir``, ``data``, ``masks``, ``vocab`` or ``index``."""
        start = self.get(f"{name}_off")
        return bytes(self.data[start : start + self.get(f"{name}_len")])

    def payload(self, i: int) -> bytes:
        """Bytes of a tensor."""
        start = self.get("data_off") + self.get_record(i, "off")
        return bytes(self.data[start : start + self.get_record(i, "nbytes")])

    def rehash(self, *, tensors: bool = False) -> Cmf:
        """Make the hashes of header and directory right again, with ``tensors`` those of the payloads before."""
        if tensors:
            for i in range(struct.unpack_from("<Q", self.data, self.get("dir_off"))[0]):
                self.set_record(i, hash=hash64(self.payload(i)))
        self.set("header_hash", hash64(self.section("header")))
        return self.set("dir_hash", hash64(self.section("dir")))

    def with_header(self, raw: bytes | None = None, **changes: Any) -> Cmf:
        """The same file with another header: raw bytes, or some fields replaced (``...`` removes one)."""
        header = copy.deepcopy(self.header)
        for name, value in changes.items():
            if value is ...:
                header.pop(name, None)
            else:
                header[name] = value
        return replace(self, header=header, raw_header=raw, data=bytearray()).build()

    def with_arch(self, **changes: Any) -> Cmf:
        """The same file with some keys of ``arch`` replaced (``...`` removes one)."""
        arch = {name: value for name, value in {**self.header["arch"], **changes}.items() if value is not ...}
        return self.with_header(arch=arch)

    def with_tensors(self, *tensors: T, **changes: Any) -> Cmf:
        """The same file with other tensors."""
        return replace(self, tensors=list(tensors), data=bytearray(), **changes).build()

    def save(self, path: Path) -> Path:
        """Write the bytes."""
        path.write_bytes(self.data)
        return path


ARCH: dict[str, Any] = {
    "arch_name": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_layers": 2,
    "num_attention_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 16,
    "vocab_size": 40,
    "layer_types": ["FullAttention", "FullAttention"],
    "rms_norm_eps": 1e-5,
    "norm_style": "qwen",
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "max_position_embeddings": 128,
}


def header(**changes: Any) -> dict[str, Any]:
    """A header with the least there must be, and what ``changes`` adds."""
    return {"format": "cmf", "version": 2, "arch": dict(ARCH), "quant_type": "F16", **changes}


def pattern(nbytes: int, seed: int = 1) -> bytes:
    """Bytes that differ from word to word."""
    i = np.arange(nbytes)
    return ((i * 37 + i // 251 * 11 + seed) % 251).astype(np.uint8).tobytes()


def two_layers() -> Cmf:
    """A tiny file with every kind of section: some tensors of two layers, two masks, tokenizer, index, chat bundle."""
    tensors = [
        T("model.embed_tokens.weight", Q8_ROW, (40, 64), pattern(40 * 64 + 80, 2)),
        T("model.norm.weight", F16, (64,), pattern(128, 3)),
        T("model.layers.0.mlp.gate_proj.weight", Q4_TILED, (96, 64), pattern(96 * 2 * 18, 4)),
        T("model.layers.0.input_layernorm.weight", F16, (64,), pattern(128, 5)),
        T("model.layers.1.mlp.gate_proj.weight", F32, (96, 64), pattern(96 * 64 * 4, 6)),
        T("model.layers.1.self_attn.q_proj.bias", BF16, (64,), pattern(128, 7)),
    ]
    chat = {"chat_template": "{{ messages }}", "eos_token_ids": [2], "bos_token_id": 1, "pad_token_id": None}
    return Cmf(
        header(tokenizer_config=chat, provenance={"tool": "test"}),
        tensors,
        masks=_masks(),
        vocab=b'{"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}',
        index=struct.pack("<IIIIII3H4B2x", 1, 0, 0, 0, 3, 4, 0, 1, 2, 0, 1, 2, 3),
        features=0b11,
    ).build()


def _masks() -> bytes:
    """Two masks over two layers of 96 neurons and 4 heads: all on, and the first group off (SPEC 5)."""
    blobs = [b"\xff" * 24 + b"\x0f" * 2 + b"\x03", b"\x00" + b"\xff" * 23 + b"\x0f" * 2 + b"\x03"]
    meta, start = b"", 0
    for _ in range(3):
        start = -(-(8 + len(meta)) // 8) * 8
        masks = [
            {
                "task_id": i,
                "name": name,
                "description": None,
                "sparsity": 0.0,
                "quality": None,
                "parent": None,
                "priority": priority,
                "has_hot_pack": False,
                "blob_off": start + 32 * i,
                "blob_len": 27,
            }
            for i, (name, priority) in enumerate((("general", "Fallback"), ("code", "Normal")))
        ]
        meta = json.dumps({"default_task": "general", "masks": masks}).encode()
    head = struct.pack("<II", 2, len(meta)) + meta
    return head + bytes(start - len(head)) + blobs[0] + bytes(5) + blobs[1]
