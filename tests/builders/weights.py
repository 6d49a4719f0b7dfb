"""Deterministic weights for tests of layouts: the ordinary, and every kind that has broken an encoder somewhere."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

_GOLDEN = Path(__file__).parents[1] / "data" / "layouts"


def heavy_tailed(rows: int, cols: int, scale: float = 0.02, seed: int = 0) -> NDArray[np.float32]:
    """Student-t weights: most groups plain, some with an outlier."""
    values = np.random.default_rng(seed).standard_t(4, (rows, cols)) * scale
    return values.clip(-60000, 60000).astype(np.float32)


def awkward(cols: int = 96) -> NDArray[np.float32]:
    """One row per difficulty: zeros, signed zeros, constants, a huge outlier, tiny and subnormal values, exact ties."""
    rng = np.random.default_rng(1)
    rows = [
        np.zeros(cols),
        np.full(cols, -0.0),
        np.full(cols, 0.7),
        np.full(cols, -0.7),
        rng.standard_normal(cols) * 1e-3,  # the outlier goes here
        rng.standard_normal(cols) * 1e-5,
        rng.standard_normal(cols) * 1e-8,
        rng.standard_normal(cols) * 1e-40,  # subnormal f32
        rng.integers(-7, 8, cols) * 0.5 + 0.25,
        rng.integers(-127, 128, cols) * 0.5,
        (rng.integers(0, 64, cols) + 0.5) * 2.0**-24,  # ties among subnormal halves
        np.where(np.arange(cols) % 32 < 16, 0.0, 1.0),
        np.where(np.arange(cols) < 32, 0.0, rng.standard_normal(cols)),  # first group zero
        np.where(rng.random(cols) < 0.5, 4e4, -4e4),
        np.eye(1, cols, 5)[0],
    ]
    values = np.array(rows).astype(np.float32)
    values[4, 3] = 900.0
    return values


def appendix_a() -> NDArray[np.float32]:
    """4 rows of 64 weights by a formula, for which upstream's bytes are known."""
    index = np.arange(256)
    values = ((((37 * index + 11) % 201) - 100) / 256).astype(np.float32).reshape(4, 64)
    values[2] *= np.float32(0.125)
    values[3, 32:] = 0
    return values


@dataclass(frozen=True, slots=True)
class GoldenTensor:
    """A tensor upstream encoded: ``payload`` of ``dtype`` and ``shape``, with the hash of what upstream decoded."""

    target: str
    name: str
    dtype: int
    shape: tuple[int, ...]
    payload: bytes
    hash: int
    decoded_hash: int | None
    source: NDArray[Any]


def golden_tensors() -> list[GoldenTensor]:
    """All tensors of ``data/layouts/golden``."""
    about = json.loads((_GOLDEN / "golden.json").read_text())
    found = []
    with np.load(_GOLDEN / "golden.npz") as arrays:
        sources = {name: arrays[f"source/{name}"] for name in about["source"]}
        for target, tensors in about["files"].items():
            for name, facts in tensors.items():
                source = sources[name]
                decoded = facts.get("decoded")
                found.append(
                    GoldenTensor(
                        target,
                        name,
                        facts["dtype"],
                        tuple(facts["shape"]),
                        arrays[f"payload/{target}/{name}"].tobytes(),
                        int(facts["hash"], 16),
                        None if decoded is None else int(decoded, 16),
                        source.view(ml_dtypes.bfloat16) if about["source"][name] == "bf16" else source,
                    )
                )
    return found


def put(at: int, form: str, value: float) -> Callable[[bytes], bytes]:
    """A payload with one number replaced."""

    def changed(payload: bytes) -> bytes:
        data = bytearray(payload)
        struct.pack_into(form, data, at, value)
        return bytes(data)

    return changed


def hash_vectors() -> list[tuple[bytes, int]]:
    """Byte strings and their hash64 as upstream prints it."""
    known = {
        "4096 zero bytes": bytes(4096),
        "4096 bytes i*7+3 mod 256": bytes((i * 7 + 3) % 256 for i in range(4096)),
        "4097 bytes i*i mod 251": bytes(i * i % 251 for i in range(4097)),
        "100003 bytes (i*31+i//256) mod 256": bytes((i * 31 + i // 256) % 256 for i in range(100003)),
    }
    vectors = json.loads((_GOLDEN / "hash64.json").read_text())
    return [(known[v["what"]] if v["hex"] is None else bytes.fromhex(v["hex"]), int(v["ref"], 16)) for v in vectors]


def weighted_errors(decoded: NDArray[Any], values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Squared error of every 32 values, each weighted with its importance: what the search of scales makes small."""
    groups = values.astype(np.float64).reshape(-1, 32)
    importance = np.sqrt(groups**2 + (groups**2).mean(axis=1, keepdims=True))
    errors: NDArray[np.float64] = (importance * (decoded.reshape(-1, 32) - groups) ** 2).sum(axis=1)
    return errors
