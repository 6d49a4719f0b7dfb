"""Files of the reference writers: the few in ``tests/data``, and all of them where they lie beside the checkout."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builders.cmf import BF16, F32, U8, Cmf, T, header, pattern
from builders.weights import golden_tensors

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "container"


def reference_folder() -> Path | None:
    """``shared/golden/ref`` beside the checkout or above it, None when it is not there."""
    found = (parent / "shared" / "golden" / "ref" for parent in ROOT.parents)
    return next((folder for folder in found if folder.is_dir()), None)


def reference_files() -> list[Path]:
    """Every .cmf in ``tests/data`` and in the folder, gzipped ones included."""
    folders = [ROOT / "tests" / "data", reference_folder()]
    return sorted(path for folder in folders if folder for kind in ("*.cmf", "*.cmf.gz") for path in folder.rglob(kind))


def unpacked(path: Path, folder: Path) -> Path:
    """``path``, or what a gzipped one holds in ``folder``."""
    if path.suffix != ".gz":
        return path
    target = folder / path.stem
    target.write_bytes(gzip.decompress(path.read_bytes()))
    return target


def recorded(path: Path) -> dict[str, NDArray[np.float32]]:
    """What the reference implementation decoded from ``path``; nothing when that was not recorded."""
    arrays = path.with_suffix(".npz")
    if not arrays.exists():
        return {}
    with np.load(arrays) as stored:
        return {name: stored[name] for name in stored.files}


def every_dtype() -> Cmf:
    """A file with a small tensor of every dtype, quantized ones as the reference writers made them."""
    smallest: dict[int, T] = {}
    for tensor in golden_tensors():
        made = T(f"dtype.{tensor.dtype}", tensor.dtype, tensor.shape, tensor.payload)
        known = smallest.setdefault(tensor.dtype, made)
        if len(made.payload) < len(known.payload):
            smallest[tensor.dtype] = made
    plain = ((F32, 4), (BF16, 2), (U8, 1))
    tensors = [T(f"plain.{dtype}", dtype, (6, 8), pattern(48 * size, dtype + 1)) for dtype, size in plain]
    return Cmf(header(), [*smallest.values(), *tensors]).build()


def two_tensors() -> Cmf:
    """The worked example of ``docs/format.md``: a q4_tiled matrix [2, 32] and an f16 vector [4]."""
    arch: dict[str, Any] = {
        "arch_name": "toy", "hidden_size": 32, "intermediate_size": 64, "num_layers": 1, "num_attention_heads": 1,
        "num_kv_heads": 1, "head_dim": 32, "vocab_size": 2, "layer_types": ["FullAttention"], "rms_norm_eps": 1e-5,
        "norm_style": "qwen", "max_position_embeddings": 64,
    }  # fmt: skip
    fields = {"format": "cmf", "version": 2, "arch": arch, "quant_type": "Q4_BLOCK"}
    rows = [(0.5, bytes(range(16))), (-0.25, bytes([0x88] * 15 + [0xF0]))]
    matrix = b"".join(struct.pack("<e", scale) + weights for scale, weights in rows)
    tensors = [
        T("model.embed_tokens.weight", 11, (2, 32), matrix),
        T("model.norm.weight", 1, (4,), struct.pack("<4e", 1.0, 0.5, -2.0, 65504.0)),
    ]
    raw = json.dumps(fields, separators=(",", ":")).encode()
    return Cmf(fields, tensors, raw_header=raw).build()
