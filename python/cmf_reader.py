#!/usr/bin/env python3
"""Reads CMF v2 files, with the standard library and NumPy alone.

To be read from top to bottom with the specification open: refusals and hash64 (SPEC 1.2, 8), envelope (1), header (2,
6.1, 8.1, 9, 10), dtypes (3.1, 3.2), files with directory, masks, sparse index and skills (3, 5, 7, 9), shard sets (10),
verifying (8.1). Every length is checked before bytes are taken. A file is valid, or there is one ``CmfError``.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import os
import re
import signal
import struct
import sys
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


class CmfError(Exception):
    """A refusal: ``kind`` is a class of SPEC 1.2 or Limit, HashMismatch, BaseMismatch, Shard, MissingTensor, Usage;
    ``code`` narrows it, ``tensor`` names one when one is to blame."""

    def __init__(self, what: str, message: str, tensor: str | None = None) -> None:
        super().__init__(f"{what}: {message}" if tensor is None else f"{what}: tensor {tensor!a}: {message}")
        self.tensor, (self.kind, self.code) = tensor, what.split(".")
        unsupported = self.kind.startswith(("Unsupported", "Missing"))
        self.exit_code = 7 if unsupported else {"Usage": 2, "HashMismatch": 4, "BaseMismatch": 4}.get(self.kind, 3)


def need(ok: Any, what: str, message: str, tensor: str | None = None) -> bool:
    """True, or a refusal with ``what``, as in ``Bounds.section``."""
    if not ok:
        raise CmfError(what, message, tensor)
    return True


def fmix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of murmur3, word by word."""
    words = (words ^ words >> np.uint64(33)) * np.uint64(0xFF51AFD7ED558CCD)
    words = (words ^ words >> np.uint64(33)) * np.uint64(0xC4CEB9FE1A85EC53)
    return words ^ words >> np.uint64(33)


def hash64(data: bytes) -> int:
    """SPEC 8: words of 8 bytes, the last padded with zeros, are mixed, salted by position outside the mix, xored."""
    folded, words = np.zeros(1, np.uint64), np.frombuffer(data + bytes(-len(data) % 8), "<u8")
    for start in range(0, words.size, 2**17):
        position = np.arange(start, min(start + 2**17, words.size), dtype=np.uint64)
        folded ^= np.bitwise_xor.reduce(fmix(words[start : start + 2**17]) ^ position * np.uint64(0x9E3779B97F4A7C15))
    return int(fmix(folded ^ np.uint64(len(data)))[0])


def parse_json(raw: bytes) -> Any:
    """UTF-8 without a BOM, 64 levels, no key twice in an object, finite numbers, whole characters; else Parse."""
    hooks: dict[str, Any] = {
        "object_pairs_hook": lambda p: need(len(dict(p)) == len(p), "Parse.dup_key", "a key occurs twice") and dict(p),
        "parse_int": lambda s: need(len(s) <= 4000, "Parse.int_range", f"an integer of {len(s)} digits") and int(s),
        "parse_float": lambda s: need(math.isfinite(float(s)), "Parse.nonfinite", f"number {s:.40}") and float(s),
        "parse_constant": lambda s: need(False, "Parse.nonfinite", f"number {s}"),
    }
    try:
        text = raw.decode("utf-8")
        need(not text.startswith("\ufeff") and "\0" not in text[:2], "Parse.utf8", "JSON has a BOM or wide characters")
        depth = 0
        for token in re.finditer(r'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]', text, re.DOTALL):
            depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
            need(depth <= 64, "Parse.depth", "JSON is nested deeper than 64 levels")
        value = json.loads(text, **hooks)
    except ValueError as error:
        raise CmfError(f"Parse.{'utf8' if isinstance(error, UnicodeDecodeError) else 'json'}", str(error)) from error
    lone = r"\u" in text and re.search("[\ud800-\udfff]", json.dumps(value, ensure_ascii=False))
    need(not lone, "Parse.surrogate", "JSON has half of a surrogate pair")
    return value


# Envelope (SPEC 1): 128 bytes that say where everything is. All integers of the file are little-endian.
SECTIONS = ("header", "directory", "data", "masks", "vocab", "index")
OPTIONAL = ("masks", "vocab", "index")
FEATURES = 0b1100111  # TENSOR_DIR, BINARY_MASKS, QUANT_2F, LOOP_MASKS, SKILL_FILE; bits 3 and 4 mean nothing yet
LIMITS = {"header": 100_000_000, "directory": 2**30}


def parse_envelope(head: bytes, file_size: int) -> tuple[int, dict[str, tuple[int, int]], dict[str, int]]:
    """required_features; where each section begins and ends; the hashes of header and directory, 0 for none."""
    need(len(head) < 4 or head[:4] == b"CMF\x01", "InvalidMagic.magic", f"the file begins with {head[:4]!r}")
    need(len(head) >= 128, "Bounds.envelope_short", f"{len(head)} bytes are no envelope")
    _, version, _flags, features, *words = struct.unpack("<4s3I14Q", head[:128])
    need(version == 2, "UnsupportedVersion.version", f"version {version}")
    need(not features & ~FEATURES, "UnsupportedFeature.feature_bit", f"unknown bits {features & ~FEATURES:#x}")
    need(features & 1, "Parse.no_tensor_dir", "bit 0 of required_features is clear")
    need(words[1], "Parse.header_empty", "there is no header")
    need(words[3] >= 16, "Bounds.dir_short", "the directory is shorter than its counts")
    sections = {name: (words[2 * i], words[2 * i] + words[2 * i + 1]) for i, name in enumerate(SECTIONS)}
    for name, (start, end) in sections.items():
        need(name != "data" or start % 4096 == 0, "Bounds.data_align", f"data_off is {start}")
        need(name != "data" or start <= file_size, "Bounds.section", "data_off lies beyond the file")
        if end > start:
            need(start or name not in OPTIONAL, "Bounds.absent_with_length", f"{name} is absent, yet has a length")
            need(start >= 128, "Bounds.section_in_envelope", f"{name} begins at {start}")
            need(end <= file_size, "Bounds.section", f"{name} ends at {end}, the file at {file_size}")
            need(end - start <= LIMITS.get(name, 2**64), f"Limit.{name}", f"{name} has {end - start} bytes")
    live = sorted((*span, name) for name, span in sections.items() if span[1] > span[0] and name != "data")
    for (_, end, first), (start, _, second) in pairwise(live):
        need(end <= start, "Bounds.overlap", f"{first} and {second} overlap")
    return features, sections, {"header": words[12], "directory": words[13]}


# Header (SPEC 2): the keys below are typed, all others are kept and mean nothing here. A rule is a type, a pattern,
# (low, high) with integers or floats, [rule, length] or {names: rule}: "name!" is required, "name?" may be null.
F32_MAX = (2 - 2.0**-23) * 2.0**127
COUNT, SIZE, COUNT64 = (1, 2**31 - 1), (0, 2**31 - 1), (1, 2**31 - 1, 2**64 - 1)
NUMBER, POSITIVE, FRACTION = (-F32_MAX, F32_MAX), (2.0**-126, F32_MAX), (2.0**-126, 1.0)
YARN: dict[str, Any] = {"factor! beta_fast beta_slow attention_factor": POSITIVE, "mscale_all_dim?": NUMBER}
YARN |= {"original_max_position_embeddings!": COUNT}
MTP = {"num_layers!": COUNT, "share_lm_head share_embed": bool}
MLA = {"kv_lora_rank! v_head_dim!": COUNT, "qk_rope_head_dim! qk_nope_head_dim! q_lora_rank?": SIZE, "nope": bool}
MOE: dict[str, Any] = {"num_experts!": (1, 2**20), "top_k! moe_intermediate_size!": COUNT}
MOE |= {"shared_expert_intermediate_size?": SIZE, "routed_scaling_factor?": NUMBER}
MOE |= {"norm_topk_prob router_sigmoid router_resonance": bool}
ARCH = {
    "hidden_size! intermediate_size! num_layers! num_attention_heads! num_kv_heads! head_dim! vocab_size!": COUNT64,
    "max_position_embeddings!": COUNT64, "arch_name! hidden_act": str, "rope_theta query_pre_attn_scalar?": POSITIVE,
    "rms_norm_eps! partial_rotary_factor local_partial_rotary_factor? global_partial_rotary_factor?": FRACTION,
    "rope_local_base_freq? final_logit_softcapping? attn_logit_softcapping?": POSITIVE, "mla?": MLA,
    "embed_multiplier logit_multiplier? kda_gate_lower_bound? activation_situ_beta?": NUMBER, "yarn?": YARN,
    "activation_situ_linear_beta?": NUMBER, "tie_word_embeddings attn_v_norm loop_final_norm": bool,
    "linear_conv_kernel_dim? linear_num_key_heads? linear_num_value_heads? linear_key_head_dim?": SIZE, "moe?": MOE,
    "linear_value_head_dim? sliding_window? sliding_window_pattern?": SIZE, "rope_freq_factors?": [POSITIVE],
    "num_loops global_head_dim? num_global_kv_heads?": COUNT, "mtp?": MTP, "attention_heads_per_layer?": [(1, 2**16)],
    "linear_core?": {"kind!": str, "num_heads!": COUNT, "nphase? value_head_dim?": SIZE},
}  # fmt: skip
CHAT = {"chat_template?": str, "eos_token_ids": [SIZE, 1024], "bos_token_id? pad_token_id?": SIZE}
SKILL = {"id!": str, "name? input_mask_task? base_arch? task?": str}
HASH = "[0-9a-fA-F]{1,16}"


def check(value: Any, rule: Any, what: str, where: str) -> None:
    """Refuse with ``what``, or with Parse.int_range for an integer beyond 2^53, unless ``value`` obeys ``rule``."""
    if isinstance(rule, dict):
        check(value, dict, what, where)
        for name, inner in ((name, inner) for names, inner in rule.items() for name in names.split()):
            key = name.rstrip("!?")
            need(key in value or not name.endswith("!"), what, f"{where}.{key} is missing")
            if key in value and not (value[key] is None and name.endswith("?")):
                check(value[key], inner, what, f"{where}.{key}")
    elif isinstance(rule, list):
        check(value, list, what, where)
        need(len(value) <= (*rule, 100_000)[1], what, f"{where} has {len(value)} elements")
        for i, item in enumerate(value):
            check(item, rule[0], what, f"{where}[{i}]")
    elif isinstance(rule, type):
        need(isinstance(value, rule), what, f"{where} is {value!r:.40}, not of type {rule.__name__}")
    elif isinstance(rule, str):
        need(isinstance(value, str) and re.fullmatch(rule, value), what, f"{where} is {value!r:.40}, not {rule}")
    else:
        kinds = int if isinstance(rule[0], int) else int | float
        need(isinstance(value, kinds) and not isinstance(value, bool), what, f"{where} is {value!r:.40}, no number")
        need(kinds is not int or abs(value) <= (*rule, 2**53)[2], "Parse.int_range", f"{where} is too large")
        need(rule[0] <= value <= rule[1], what, f"{where} is not from {rule[0]} to {rule[1]}")


def parse_header(raw: bytes) -> dict[str, Any]:
    """The JSON object. Refuses with Parse: what is wrong is the code."""
    header = parse_json(raw)
    check(header, dict, "Parse.header_type", "the header")
    check(header, {"format": "cmf", "version!": (2, 2), "quant_type": str}, "Parse.header_field", "header")
    arch, hashes, chat, shard = (header.get(n) for n in ("arch", "section_hashes", "tokenizer_config", "shard"))
    check(arch, dict, "Parse.arch", "arch")
    check(arch, {"layer_types!": [str, 2**64]}, "Parse.layer_types", "arch")
    need(len(arch["layer_types"]) <= 100_000, "Limit.layer_types", "more than 100,000 layer types")
    check(arch, ARCH, "Parse.arch", "arch")
    need(len(arch["layer_types"]) == arch["num_layers"], "Parse.layer_types", "not one tag per layer")
    own, usual, kv = arch.get("attention_heads_per_layer"), arch["num_attention_heads"], arch["num_kv_heads"]
    heads = [usual] * arch["num_layers"] if own is None else own
    need(len(heads) == arch["num_layers"] and not any(n % kv for n in (usual, *heads)), "Parse.arch", "heads misfit")
    if chat is not None:
        check(chat, CHAT, "Parse.chat", "tokenizer_config")
        ids = [*chat.get("eos_token_ids", []), chat.get("bos_token_id") or 0, chat.get("pad_token_id") or 0]
        need(max(ids) < arch["vocab_size"], "Parse.chat", "a token id is not below vocab_size")
    if shard is not None:
        check(shard, {"no! count!": (1, 100_000), "set?": "[0-9a-fA-F]{32}", "dirs": [HASH]}, "Parse.shard", "shard")
        dirs = shard.get("dirs", range(shard["count"]))
        need(shard["no"] <= shard["count"] == len(dirs), "Parse.shard", "no or dirs do not fit count")
    check({} if hashes is None else hashes, {"masks vocab index": HASH}, "Parse.section_hash", "section_hashes")
    skills = header.get("skills", [])
    check(skills, [SKILL], "Parse.skill", "skills")
    check(skills, [{"id": "[^./]+"}], "Parse.skill_id", "skills")
    check(skills, [{"base_dir_hash?": HASH}], "Parse.skill_file", "skills")
    need(len({skill["id"] for skill in skills}) == len(skills), "Parse.skill_dup", "two skills have one id")
    return header


# Dtypes (SPEC 3.1, 3.2). A matrix is [rows, cols] = [out, in]; a group is 32 weights of a row.
DTYPES = {
    0: "f32", 1: "f16", 2: "bf16", 3: "q8_row", 4: "q4_block", 6: "u8", 8: "vbit", 9: "q8_2f", 10: "vbit_ro",
    11: "q4_tiled", 12: "q1", 13: "q1s", 14: "q1t", 15: "q4tp", 16: "q2tp",
}  # fmt: skip
ITEM_NBYTES = {"f32": 4, "f16": 2, "bf16": 2, "u8": 1}


def view(data: Bytes, kind: str) -> NDArray[Any]:
    """The bytes as little-endian numbers; f16 becomes f32."""
    numbers: NDArray[Any] = np.ascontiguousarray(data).view(kind)
    return numbers.astype(np.float32) if kind == "<f2" else numbers


def fields(data: Bytes, width: int, count: int) -> Bytes:
    """``count`` fields of ``width`` bits from each row of bytes, least significant bit first."""
    bits = np.unpackbits(data, axis=1, bitorder="little")[:, : width * count]
    return np.packbits(bits.reshape(-1, count, width), axis=2, bitorder="little")[:, :, 0]


def nibbles(data: Bytes) -> Floats:
    """4 bits a weight, 32 weights a row; 8 stands for zero."""
    return fields(data, 4, 32).astype(np.float32) - np.float32(8)


class Tensor(NamedTuple):
    """A record of the directory. ``off`` is relative to the data section of ``file``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    off: int
    nbytes: int
    hash: int
    file: CmfFile

    def payload(self) -> bytes:
        """The bytes as stored."""
        start = self.file.sections["data"][0] + self.off
        return self.file.read(start, start + self.nbytes)

    def array(self) -> NDArray[Any]:
        """The tensor in f32, u8 as bytes. Refuses contents that contradict themselves."""
        return self._decode(np.frombuffer(self.payload(), np.uint8)).reshape(self.shape)

    def check_size(self) -> None:
        """``nbytes`` is what dtype and shape make, and the dtype can have this shape."""
        count, name, dtype, shape = math.prod(self.shape), self.name, self.dtype, self.shape
        need(count < 2**63, "Bounds.size_overflow", f"{count} elements", name)
        if dtype in ITEM_NBYTES:
            least = ITEM_NBYTES[dtype] * count
        else:
            need(shape, "Parse.ndim", f"a scalar cannot be {dtype}", name)
            need(len(shape) == 2 or dtype == "q4_block", "Parse.ndim_dtype", f"{dtype} is for matrices", name)
            whole = dtype in ("q8_row", "q8_2f", "q4_block") or (shape[1] > 0 and shape[1] % 32 == 0)
            need(whole, "Parse.in_mod_32", f"{shape[-1]} columns are no groups of 32", name)
            need(count, "Parse.zero_dim", f"an empty tensor cannot be {dtype}", name)
            rows, cols, tiles = shape[0], shape[-1], -(-count // 32)
            need(dtype != "q1s" or count <= 2**32, "Parse.q1s_too_large", "an index has 32 bits", name)
            need(dtype != "q1t" or cols < 2**16, "Parse.q1t_cols", "a column has 16 bits", name)
            need(dtype != "vbit_ro" or 12 * tiles < 2**32, "Bounds.size_overflow", "an offset has 32 bits", name)
            ladder, thin = rows * (4 + -(-5 * (cols // 32) // 8)), rows + 2 * tiles + 12 * tiles
            least = {
                "q8_row": count + 2 * rows, "q8_2f": count + 2 * rows + 2 * cols, "q4_block": 18 * tiles,
                "q4_tiled": 18 * tiles, "q4tp": 16 * tiles + ladder, "q2tp": 8 * tiles + ladder, "q1": 6 * tiles,
                "q1s": 6 * tiles + 4, "q1t": 9 * tiles + 4 * (rows + 1), "vbit": thin, "vbit_ro": thin + 4 * (rows + 1),
            }[dtype]  # fmt: skip
        need(least < 2**63, "Bounds.size_overflow", f"{least} bytes", name)
        fits = self.nbytes == least or (dtype in ("vbit", "vbit_ro", "q1s", "q1t") and self.nbytes > least)
        need(fits, "Bounds.nbytes", f"{self.nbytes} bytes, but {dtype} {list(shape)} takes {least}", name)

    @np.errstate(all="ignore")  # scales are not judged: they may be infinite
    def _decode(self, data: Bytes) -> NDArray[Any]:
        """The values in the order of the elements, in any shape."""
        if self.dtype in ("u8", "f16", "f32"):
            return view(data, {"u8": "u1", "f16": "<f2", "f32": "<f4"}[self.dtype])
        if self.dtype == "bf16":  # the upper half of an f32
            return (view(data, "<u2").astype(np.uint32) << 16).view(np.float32)
        if self.dtype in ("q8_row", "q8_2f"):  # [int8 : rows cols][f16 row scale : rows]([f16 column scale : cols])
            size = math.prod(self.shape)
            weights, scales, columns = np.split(data, [size, size + 2 * self.shape[0]])
            values: Floats = weights.view(np.int8).reshape(self.shape).astype(np.float32) * view(scales, "<f2")[:, None]
            return values if self.dtype == "q8_row" else values * view(columns, "<f2")
        if self.dtype == "q4_block":  # [16 bytes : groups][f16 : groups] over the flattened tensor, the end padded
            weights, scales = np.split(data, [data.size // 18 * 16])
            return (nibbles(weights.reshape(-1, 16)) * view(scales, "<f2")[:, None]).reshape(-1)[
                : math.prod(self.shape)
            ]
        if self.dtype == "q4_tiled":  # [f16 scale, 16 bytes] : groups
            tiles = data.reshape(-1, 18)
            return nibbles(tiles[:, 2:]) * view(tiles[:, :2], "<f2")
        if self.dtype in ("q4tp", "q2tp"):
            return self._ladder(data)
        return self._vbit(data) if self.dtype in ("vbit", "vbit_ro") else self._q1(data)

    def _ladder(self, data: Bytes) -> Floats:
        """[weights : groups][f16 lo, f16 step : rows][5-bit codes : rows]. A code picks a rung of the row as scale.
        The first rung is 2^lo, each further one the rung before times 2^step in f32; q2tp has a zero before them.
        """
        rows, groups, packed = self.shape[0], self.shape[1] // 32, 16 if self.dtype == "q4tp" else 8
        weights, params, codes = np.split(data, [rows * groups * packed, rows * (groups * packed + 4)])
        x = view(params, "<f2").astype(np.float64).reshape(rows, 2)
        top = np.maximum(x[:, 0], x[:, 0] + (31 if self.dtype == "q4tp" else 30) * x[:, 1])
        valid = np.isfinite(x).all(axis=1) & (top <= 127)
        need(valid.all(), "Parse.q4tp_ladder", f"the scales of row {np.argmin(valid)} are beyond f32", self.name)
        r = x - np.rint(x * 32) / 32  # 2^x to the last bit of what C libraries give in f32, as files were written
        power = ((0.05550361559341535 * r + 0.2402284522445722) * (r * r) + (0.6931471806916203 * r + 1)) * np.exp2(
            x - r
        )
        ladder = np.multiply.accumulate(power.astype(np.float32)[:, [0] + [1] * 31], axis=1)
        ladder = ladder if self.dtype == "q4tp" else np.pad(ladder[:, :31], ((0, 0), (1, 0)))
        scales = np.take_along_axis(ladder, fields(codes.reshape(rows, -1), 5, groups), axis=1).reshape(-1, 1)
        if self.dtype == "q4tp":
            return nibbles(weights.reshape(-1, 16)) * scales
        return (fields(weights.reshape(-1, 8), 2, 32).astype(np.float32) - np.float32(1.5)) * scales

    def _vbit(self, data: Bytes) -> Floats:
        """[u8 width : rows][f16 scale : groups]([u32 offset : rows + 1])[rows of weights, highest bit first]."""
        rows, cols = self.shape
        widths, head = data[:rows], rows + rows * cols // 16
        need(np.isin(widths, (3, 4, 5, 6, 8)).all(), "Parse.vbit_bits", "a width is not 3, 4, 5, 6 or 8", self.name)
        start = head + (4 * (rows + 1) if self.dtype == "vbit_ro" else 0)
        ends = np.cumsum(widths.astype(np.int64) * (cols // 8)).tolist()
        need(start + ends[-1] == data.size, "Bounds.vbit_size", "the rows do not fill the payload", self.name)
        stated = view(data[head:start], "<u4").tolist()
        need(stated in ([], [0, *ends]), "Bounds.vbit_offsets", "the offsets contradict the widths", self.name)
        codes = np.empty(self.shape, np.float32)
        for row, (begin, end, width) in enumerate(zip([0, *ends[:-1]], ends, widths.tolist(), strict=True)):
            bits = np.unpackbits(data[start + begin : start + end]).reshape(cols, width)
            codes[row] = (np.packbits(bits, axis=1)[:, 0] >> (8 - width)) - np.float32(2 ** (width - 1) - 1)
        return codes * np.repeat(view(data[rows:head], "<f2").reshape(rows, -1), 32, axis=1)

    def _q1(self, data: Bytes) -> Floats:
        """q1: [f16 scale, 32 sign bits] : groups. q1s: then [u32 count][u32 flat index, f16 value].
        q1t: [f16 scale, 7 bytes of five ternary digits] : groups, then [u32 row_ptr : rows + 1][u16 column, f16 value].
        """
        rows, cols = self.shape
        base = (9 if self.dtype == "q1t" else 6) * (rows * cols // 32)
        tiles, tail = data[:base].reshape(rows * cols // 32, -1), data[base:]
        scale = view(tiles[:, :2], "<f2")
        if self.dtype == "q1t":
            need(tiles[:, 2:].max() < 3**5, "Parse.q1t_code", "a byte is not five ternary digits", self.name)
            digits = (tiles[:, 2:, None] // 3 ** np.arange(5) % 3).reshape(-1, 35)[:, :32]
            weights = np.select([digits == 1, digits == 2], [scale, -scale], np.float32(0)).reshape(-1)
            row_ptr, tail = view(tail[: 4 * (rows + 1)], "<u4").astype(np.int64), tail[4 * (rows + 1) :]
            counts = np.diff(row_ptr)
            filled = row_ptr[0] == 0 and (counts >= 0).all() and 4 * row_ptr[-1] == tail.size
            need(filled, "Bounds.q1t_row_ptr", "row_ptr does not count the outliers", self.name)
            column = view(tail.reshape(-1, 4)[:, :2], "<u2").reshape(-1).astype(np.int64)
            need(column.max(initial=0) < cols, "Bounds.q1t_col", "an outlier beyond the last column", self.name)
            index = np.repeat(np.arange(rows), counts) * cols + column
        else:
            weights = np.where(fields(tiles[:, 2:], 1, 32) == 1, scale, -scale).reshape(-1)
            if self.dtype == "q1":
                return weights
            count, tail = int(view(tail[:4], "<u4")[0]), tail[4:]
            need(6 * count == tail.size, "Bounds.q1s_count", f"{count} outliers do not fill the payload", self.name)
            index = view(tail.reshape(-1, 6)[:, :4], "<u4").reshape(-1)
            need(index.max(initial=0) < rows * cols, "Bounds.q1s_index", "an outlier outside the tensor", self.name)
        weights[index] = view(tail.reshape(-1, 4 if self.dtype == "q1t" else 6)[:, -2:], "<f2").reshape(-1)
        return weights


MASK = {
    "task_id!": (0, 2**32 - 1), "name! description? parent?": str, "priority!": "Fallback|Normal|Primary",
    "has_hot_pack has_expert_fields": bool, "blob_off! blob_len!": (-(2**9999), 2**9999, 2**9999), "sparsity!": NUMBER,
    "quality?": {"metric!": str, "value! baseline_dense?": NUMBER, "n_samples?": SIZE, "dataset_sha256?": str},
}  # fmt: skip


class CmfFile:
    """One file: ``features``, ``sections`` and ``hashes`` of the envelope, ``header``, ``tensors`` and ``skills``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self.size = os.fspath(path), os.path.getsize(path)
        need(os.path.isfile(path), "Usage.not_regular", "not a regular file")
        self.features, self.sections, self.hashes = parse_envelope(self.read(0, min(128, self.size)), self.size)
        raw = {name: self.section(name) for name in ("header", "directory")}
        for name, stated in self.hashes.items():
            need(stated in (0, hash64(raw[name])), f"HashMismatch.{name}", "the hash in the envelope is another")
        self.header = parse_header(raw["header"])
        self.skills = {skill["id"]: skill for skill in self.header.get("skills", [])}
        self.keys = [int(s["base_dir_hash"], 16) for s in self.skills.values() if s.get("base_dir_hash") is not None]
        need(bool(self.keys) == bool(self.features & 64), "Parse.skill_file", "bit 6 and base_dir_hash come together")
        self.tensors = self._directory(raw["directory"])

    def _directory(self, raw: bytes) -> dict[str, Tensor]:
        """SPEC 3: counts, records of 56 bytes, pool of names."""
        count, pool_off = struct.unpack_from("<QQ", raw)
        need(count <= (len(raw) - 16) // 56, "Bounds.dir_count", f"there is no room for {count} records")
        need(16 + 56 * count <= pool_off <= len(raw), "Bounds.pool", f"the pool of names is at {pool_off}")
        records, pool = [struct.unpack_from("<IHBB6I3Q", raw, 16 + 56 * i) for i in range(count)], raw[pool_off:]
        need(all(r[0] + r[1] <= len(pool) for r in records), "Bounds.name", "a name lies outside the pool")
        need(all(r[1] for r in records), "Parse.name_empty", "a name is empty")
        names = [pool[r[0] : r[0] + r[1]].decode("utf-8", "surrogateescape") for r in records]
        need(not any(re.search("[\udc80-\udcff]", name) for name in names), "Parse.name_utf8", "a name is not UTF-8")
        controls = [name for name in names if re.search(r"[\x00-\x1f\x7f-\x9f]", name)]
        need(not controls, "Parse.name_ctrl", "a control character")
        need(len(set(names)) == count, "Parse.name_dup", "two tensors have one name")
        tensors, (base, blob_end) = list[Tensor](), self.sections["data"]
        for name, (_, _, dtype, ndim, *dims, off, nbytes, digest) in zip(names, records, strict=True):
            need(ndim <= 6, "Parse.ndim", f"{ndim} dimensions", name)
            need(dtype in DTYPES, "Parse.dtype", f"dtype {dtype} is unknown or reserved", name)
            need(not any(dims[ndim:]), "Parse.shape_tail", "an unused dimension is not zero", name)
            need(off + nbytes < 2**64, "Bounds.tensor", "off + nbytes wraps", name)
            tensors.append(Tensor(name, DTYPES[dtype], tuple(dims[:ndim]), off, nbytes, digest, self))
            tensors[-1].check_size()
            need(off % 64 == 0, "Bounds.tensor_align", f"off {off} is no multiple of 64", name)
            need(base + off + nbytes <= blob_end, "Bounds.tensor", "it does not lie in the data section", name)
        for a, b in pairwise(sorted((t for t in tensors if t.nbytes), key=lambda t: (t.off, t.nbytes))):
            apart = a.off + a.nbytes <= b.off or a[1:6] == b[1:6]  # one payload may have several names
            need(apart, "Bounds.tensor_overlap", f"shares bytes with {a.name!a}", b.name)
        for start, end in (span for name, span in self.sections.items() if name != "data" and span[1] > span[0]):
            for t in (t for t in tensors if t.nbytes):
                apart = base + t.off >= end or base + t.off + t.nbytes <= start
                need(apart, "Bounds.tensor_over_section", "it lies over another section", t.name)
        return dict(zip(names, tensors, strict=True))

    def read(self, start: int, end: int) -> bytes:
        """Bytes of the file: all of them, or Bounds.section."""
        with open(self.path, "rb") as stream:
            stream.seek(start)
            data = stream.read(end - start)
        need(len(data) == end - start, "Bounds.section", f"the file ends before {end}")
        return data

    def section(self, name: str) -> bytes:
        """A section of SECTIONS, empty when it is absent. ``vocab`` is a tokenizer.json, verbatim (SPEC 6)."""
        start, end = self.sections[name]
        return self.read(start, end) if end > start else b""

    def masks(self) -> tuple[str, dict[str, dict[str, Any]]]:
        """SPEC 5: the default task and, by name, each mask's meta with bool arrays ``ffn`` [layers or visits, neurons],
        ``heads`` [layers, heads], ``gates`` [1, layers], ``experts`` [layers, experts]; ``tail``: bits beyond these."""
        raw, arch, masks, spans = self.section("masks"), self.header["arch"], {}, []
        if not raw:
            return "", {}
        need(len(raw) >= 8, "Bounds.mask_count", "the section is shorter than its counts")
        count, meta_len = struct.unpack_from("<II", raw)
        need(8 + meta_len <= len(raw), "Bounds.mask_meta", "the meta does not end in the section")
        meta, layers = parse_json(raw[8 : 8 + meta_len]), arch["num_layers"]
        check(meta, {"default_task!": str, "masks!": [dict]}, "Parse.mask_meta", "masks")
        need(len(meta["masks"]) == count, "Parse.mask_count", f"{count} masks, but {len(meta['masks'])} in the meta")
        for mask in meta["masks"]:
            check(mask, MASK, "Parse.mask_meta", "a mask")
            routed, experts = mask.get("has_expert_fields", False), (arch.get("moe") or {}).get("num_experts", 0)
            need(experts or not routed, "Parse.mask_meta", "expert fields without arch.moe")
            at, end = mask["blob_off"], mask["blob_off"] + mask["blob_len"]
            need(at % 8 == 0 and 8 + meta_len <= at <= len(raw), "Bounds.mask_blob", f"the bits begin at {at}")
            widths = (arch["intermediate_size"], arch["num_attention_heads"], layers, experts if routed else 0)
            ffn, heads, gates, chosen = (-(-width // 8) for width in widths)
            fixed, visits = layers * (heads + chosen) + gates, (layers, layers * arch.get("num_loops", 1))
            rows = next((n for n in visits if n * ffn + fixed == end - at), 0)
            need(rows, "Bounds.mask_len", f"{end - at} bytes instead of {visits[1] * ffn + fixed}")
            need(end <= len(raw), "Bounds.mask_blob", "the bits do not end in the section")
            spans.append((at, end))
            counts, tail = {"ffn": rows, "heads": layers, "gates": 1, "experts": layers}, False
            for (area, n), width in zip(counts.items(), widths, strict=True):
                packed = np.frombuffer(raw, np.uint8, n * -(-width // 8), at).reshape(n, -(-width // 8))
                bits, at = np.unpackbits(packed, axis=1, bitorder="little") > 0, at + packed.size
                mask[area], tail = bits[:, :width], tail or bool(bits[:, width:].any())
            masks[mask["name"]] = mask | {"tail": tail}
        need(all(a[1] <= b[0] for a, b in pairwise(sorted(spans))), "Bounds.mask_overlap", "two masks share bytes")
        ids = {mask["task_id"] for mask in masks.values()}
        need(len(masks) == count == len(ids), "Parse.mask_meta", "two masks have one name or task_id")
        return meta["default_task"], masks

    def index(self) -> list[tuple[int, int, tuple[int, ...], bytes]]:
        """SPEC 7: (task_id, layer, active FFN groups, active heads). To be shown only; nothing executes it."""
        raw = self.section("index") or bytes(8)
        need(len(raw) >= 8, "Bounds.index", "the section is shorter than its head")
        at, entries = 8, []
        for _ in range(struct.unpack_from("<I", raw)[0]):
            need(at + 16 <= len(raw), "Bounds.index", f"the entry at {at} is cut off")
            task, layer, groups, heads = struct.unpack_from("<4I", raw, at)
            end = at + 16 + 2 * groups + heads
            need(end <= len(raw), "Bounds.index", f"the entry at {at} is cut off")
            entries.append((task, layer, struct.unpack_from(f"<{groups}H", raw, at + 16), raw[end - heads : end]))
            at = -(-end // 4) * 4
        return entries

    def tensor(self, name: str, skill: str | None = None) -> Tensor:
        """The tensor ``name``, or what ``skill`` has in its place (SPEC 9). MissingTensor.name, Usage.skill."""
        prefix = f"skill.{skill}."
        known = skill is None or skill in self.skills or any(other.startswith(prefix) for other in self.tensors)
        need(known, "Usage.skill", f"there is no skill {skill!a:.80}")
        need(name in self.tensors, "MissingTensor.name", "there is no such tensor", name)
        base, own = self.tensors[name], self.tensors.get(prefix + name) if skill is not None else None
        need(own is None or own.shape == base.shape, "Parse.skill_shape", "not the shape of what it replaces", name)
        return own or base

    def digests(self) -> dict[str, dict[str, str]]:
        """Beyond the specification, in hex: SHA-256 of ``sections`` from the header, and of ``tensors`` from the u8
        tensor the header names, 32 bytes for each other one in directory order."""
        stated, what = self.header.get("digests"), "Parse.digests"
        if stated is None:
            return {}
        sections = {"directory masks vocab index": "[0-9a-f]{64}"}
        check(stated, {"alg!": str, "tensor!": str, "sections!": sections}, what, "digests")
        need(stated["alg"] == "sha256", "UnsupportedFeature.digests", "digests of another kind")
        held, names = self.tensors.get(stated["tensor"]), [name for name in self.tensors if name != stated["tensor"]]
        need(held and (held.dtype, held.nbytes) == ("u8", 32 * len(names)), what, "not 32 bytes for each tensor")
        raw = held.payload() if held else b""
        tensors = {name: raw[32 * i : 32 * i + 32].hex() for i, name in enumerate(names)}
        return {"sections": stated["sections"], "tensors": tensors}

    def check_base(self, base: CmfFile) -> None:
        """Refuse with BaseMismatch.base unless this standalone skill was cut against ``base`` (SPEC 9.1)."""
        need(self.keys, "Usage.no_skill_file", "this is no standalone skill")
        key = base.hashes["directory"] or hash64(base.section("directory"))
        need(self.keys[0] == key, "BaseMismatch.base", f"cut against {self.keys[0]:016x}, the base is {key:016x}")


def open_model(path: str | os.PathLike[str]) -> CmfFile:
    """A file. For any file of a shard set the first one, with the tensors of all (SPEC 10)."""
    file, files = CmfFile(path), list[CmfFile]()
    if (shard := file.header.get("shard") or {"count": 1})["count"] == 1:
        return file
    name = f"-{shard['no']:05}-of-{shard['count']:05}.cmf"
    need(file.path.endswith(name), "Shard.mismatch", f"the name does not end with {name}")
    for no in range(1, shard["count"] + 1):
        sibling = f"{file.path[:-18]}{no:05}{file.path[-13:]}"
        need(os.path.isfile(sibling), "Shard.missing", f"{sibling} is missing")
        files.append(CmfFile(sibling))
        stated = files[-1].header.get("shard") or {}
        need((stated.get("no"), stated.get("count")) == (no, shard["count"]), "Shard.mismatch", f"{sibling}: {stated}")
        ours, theirs = (part.header["shard"].get("set") or part.header["arch"] for part in (files[0], files[-1]))
        dirs = [int(digits, 16) for digits in files[0].header["shard"].get("dirs", [])[max(1, no - 1) : no]]
        need(ours == theirs and dirs in ([], [hash64(files[-1].section("directory"))]), "Shard.set_mismatch", sibling)
        for tensor in files[-1].tensors.values() if no > 1 else ():
            need(tensor.name not in files[0].tensors, "Parse.name_dup", "the name is in two shards", tensor.name)
            files[0].tensors[tensor.name] = tensor
    return files[0]


def verify(file: CmfFile) -> list[CmfError]:
    """What is wrong with one file (SPEC 8.1): hashes, digests, contents. Opening has compared header and directory."""
    found: list[CmfError] = []

    def note(call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except CmfError as error:
            found.append(error)

    def compare(data: bytes, stated: int | None, digest: str | None, what: str, name: str | None = None) -> None:
        note(need, stated in (None, hash64(data)), f"HashMismatch.{what}", "the hash64 is another", name)
        note(need, digest in (None, hashlib.sha256(data).hexdigest()), f"HashMismatch.{what}", "another SHA-256", name)

    hashes, digests = file.header.get("section_hashes") or {}, note(file.digests) or {"sections": {}, "tensors": {}}
    for what in ("directory", *OPTIONAL):
        data = file.section(what)
        stated = int(hashes.get(what, "0"), 16) if data and what in OPTIONAL else 0
        compare(data, stated or None, digests["sections"].get(what), what)
    for t in file.tensors.values():
        compare(t.payload(), t.hash, digests["tensors"].get(t.name), "tensor", t.name)
        note(t.array)
    for name, mask in (note(file.masks) or ("", {}))[1].items():
        note(need, not mask["tail"], "Parse.mask_tail", f"the mask {name!a} has bits beyond a dimension")
    note(file.index)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Exit codes: 0 ok, 1 system error, 2 usage, 3 not a valid file, 4 damaged, 7 not supported, 130 interrupted."""
    parser = argparse.ArgumentParser(description="Look into a CMF v2 file.", epilog=main.__doc__)
    parser.add_argument("file", metavar="FILE", help="a .cmf file, or any file of a shard set")
    parser.add_argument("--verify", action="store_true", help="compare every hash of this one file, read every tensor")
    parser.add_argument("--dump", metavar="NAME", help="write a tensor to standard output: .npy in f32, u8 as it is")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args(arguments)
    try:
        file = CmfFile(args.file) if args.verify else open_model(args.file)
        if args.dump is not None:
            array, out = file.tensor(args.dump).array(), io.BytesIO()
            np.save(out, array)
            sys.stdout.buffer.write(array.tobytes() if array.dtype == np.uint8 else out.getvalue())
            return 0
        problems = verify(file) if args.verify else []
        tensors = [t._asdict() | {"hash": f"{t.hash:016x}", "file": t.file.path} for t in file.tensors.values()]
        report = {"schema_version": 1, "path": file.path, "size": file.size, "features": file.features}
        report |= {"sections": file.sections, "skills": list(file.skills), "problems": [str(p) for p in problems]}
        report["compared"] = ["hash64", "sha256"][: args.verify + (args.verify and "digests" in file.header)]
        report["masks"] = [] if problems else list(file.masks()[1])
    except (CmfError, OSError) as error:
        print(f"error: {args.file!a}: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, CmfError) else 1
    text = [f"{key}: {value!a}" for key, value in report.items()]
    text += [f"{t['hash']}  {t['dtype']:8}  {t['nbytes']:12}  {t['name']!a} {list(t['shape'])}" for t in tensors]
    print(json.dumps(report | {"header": file.header, "tensors": tensors}) if args.json else "\n".join(text))
    return problems[0].exit_code if problems else 0


if __name__ == "__main__":
    signal.signal(getattr(signal, "SIGPIPE", signal.SIGTERM), signal.SIG_DFL)  # a reader that went ends it silently
    sys.exit(main())
