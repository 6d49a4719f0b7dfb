"""Random weight matrices as bytes in file layout, with realistic and with extreme values."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

import numpy as np

from cortiq.ops.linear import Matrix

F32, F16, BF16, Q8_ROW, Q4_TILED = 0, 1, 2, 3, 11
Q4_BLOCK, Q8_2F, Q1, Q1S, Q1T, VBIT, VBIT_RO, Q4TP, Q2TP = 4, 9, 12, 13, 14, 8, 10, 15, 16
INT8 = (Q8_ROW, Q8_2F, Q4_TILED)  # multiply int8 activations in fast mode
FAST = (F32, F16, BF16, *INT8)
SLOW = (Q4_BLOCK, Q1, Q1S, Q1T, VBIT, VBIT_RO, Q4TP, Q2TP)  # decoded to f32 before they are multiplied
DTYPES = FAST + SLOW
GROUPED = (Q4_TILED, Q1, Q1S, Q1T, VBIT, VBIT_RO, Q4TP, Q2TP)  # columns in groups of 32


def random_matrix(dtype: int, rows: int, cols: int, seed: int = 0) -> Matrix:
    """Quantized layouts get every stored value, -128 and negative or subnormal scales included."""
    rng = np.random.default_rng((seed, dtype, rows, cols))
    values = rng.standard_normal((rows, cols), np.float32) * np.float32(0.05)
    if dtype == F32:
        return Matrix(dtype, values.tobytes(), rows, cols)
    if dtype == F16:
        return Matrix(dtype, values.astype("<f2").tobytes(), rows, cols)
    if dtype == BF16:
        return Matrix(dtype, (values.view(np.uint32) >> 16).astype("<u2").tobytes(), rows, cols)
    if dtype == Q8_ROW:
        quants = rng.integers(-128, 128, (rows, cols)).astype(np.int8)
        return Matrix(dtype, quants.tobytes() + _scales(rng, rows).tobytes(), rows, cols)
    if dtype in _PAYLOADS:
        return Matrix(dtype, _PAYLOADS[dtype](rng, rows, cols), rows, cols)
    groups = cols // 32
    tiles = rng.integers(0, 256, (rows, groups, 18)).astype(np.uint8)
    tiles[..., :2] = _scales(rng, rows * groups).view(np.uint8).reshape(rows, groups, 2)
    return Matrix(dtype, tiles.tobytes(), rows, cols)


def extreme_matrix(dtype: int, rows: int, cols: int, high: bool) -> Matrix:
    """Every stored integer at one end of its range: the largest sums a kernel can meet."""
    matrix = random_matrix(dtype, rows, cols)
    data = np.frombuffer(matrix.payload, np.uint8).copy()
    if dtype in (Q8_ROW, Q8_2F):
        data[: rows * cols] = 127 if high else 128
    else:
        data.reshape(-1, 18)[:, 2:] = 255 if high else 0
    return Matrix(dtype, data.tobytes(), rows, cols)


def activations(m: int, cols: int, seed: int = 0) -> np.ndarray:
    """f32 [m, cols] with a few columns much larger than the rest."""
    rng = np.random.default_rng((seed, m, cols))
    x = rng.standard_normal((m, cols), np.float32)
    x[:, rng.integers(0, cols, 1 + cols // 100)] *= 12
    return x


def at_page_end(payload: bytes) -> np.ndarray:
    """u8 view of a copy that ends exactly where an unreadable page begins: one byte further faults."""
    page = mmap.PAGESIZE
    size = -(-len(payload) // page) * page
    region = mmap.mmap(-1, size + page)
    whole = np.frombuffer(region, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    address = whole.ctypes.data + size
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(page), 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    view = whole[size - len(payload) : size]
    view[:] = np.frombuffer(payload, np.uint8)
    return view


def _scales(rng: np.random.Generator, count: int) -> np.ndarray:
    scales = (rng.uniform(0.5, 1.5, count) * 0.01).astype("<f2")
    scales[rng.random(count) < 0.3] *= -1
    scales[rng.random(count) < 0.05] = np.float16(3e-7)
    return scales


def _q4_block(rng: np.random.Generator, rows: int, cols: int) -> bytes:
    groups = -(-rows * cols // 32)
    return rng.bytes(16 * groups) + _scales(rng, groups).tobytes()


def _q8_2f(rng: np.random.Generator, rows: int, cols: int) -> bytes:
    return rng.bytes(rows * cols) + _scales(rng, rows).tobytes() + _scales(rng, cols).tobytes()


def _tiles(rng: np.random.Generator, tiles: int, codes: np.ndarray) -> bytes:
    scales = _scales(rng, tiles).view(np.uint8).reshape(tiles, 2)
    return np.concatenate([scales, codes.astype(np.uint8)], axis=1).tobytes()


def _q1(rng: np.random.Generator, rows: int, cols: int) -> bytes:
    tiles = rows * cols // 32
    return _tiles(rng, tiles, rng.integers(0, 256, (tiles, 4)))


def _q1s(rng: np.random.Generator, rows: int, cols: int) -> bytes:
    """Outliers at both ends of the matrix and in between, none in some rows."""
    chosen = {0, rows * cols - 1, *rng.integers(0, rows * cols, rows * cols // 50).tolist()}
    entries = np.empty(len(chosen), np.dtype([("index", "<u4"), ("value", "<f2")]))
    entries["index"], entries["value"] = sorted(chosen), rng.standard_normal(len(chosen))
    return _q1(rng, rows, cols) + np.uint32(len(chosen)).tobytes() + entries.tobytes()


def _q1t(rng: np.random.Generator, rows: int, cols: int) -> bytes:
    tiles = rows * cols // 32
    counts = rng.integers(0, 4, rows)
    entries = np.empty(int(counts.sum()), np.dtype([("column", "<u2"), ("value", "<f2")]))
    entries["column"] = np.concatenate([np.sort(rng.choice(cols, n, replace=False)) for n in counts])
    entries["value"] = rng.standard_normal(len(entries))
    pointers = np.concatenate([[0], np.cumsum(counts)]).astype("<u4")
    return _tiles(rng, tiles, rng.integers(0, 243, (tiles, 7))) + pointers.tobytes() + entries.tobytes()


def _vbit(rng: np.random.Generator, rows: int, cols: int, *, table: bool = False) -> bytes:
    widths = rng.choice(np.uint8([3, 4, 5, 6, 8]), rows)
    ends = np.cumsum(widths.astype("<u4") * np.uint32(cols // 8), dtype="<u4")
    offsets = np.concatenate([[0], ends]).astype("<u4").tobytes() if table else b""
    return widths.tobytes() + _scales(rng, rows * cols // 32).tobytes() + offsets + rng.bytes(int(ends[-1]))


def _vbit_ro(rng: np.random.Generator, rows: int, cols: int) -> bytes:
    return _vbit(rng, rows, cols, table=True)


def _ladders(rng: np.random.Generator, rows: int, cols: int, group_nbytes: int) -> bytes:
    groups = cols // 32
    params = np.stack([rng.uniform(-12, -4, rows), rng.uniform(-0.1, 0.2, rows)], axis=1).astype("<f2")
    return rng.bytes(rows * groups * group_nbytes) + params.tobytes() + rng.bytes(rows * -(-5 * groups // 8))


def _q4tp(rng: np.random.Generator, rows: int, cols: int) -> bytes:
    return _ladders(rng, rows, cols, 16)


def _q2tp(rng: np.random.Generator, rows: int, cols: int) -> bytes:
    return _ladders(rng, rows, cols, 8)


_PAYLOADS: dict[int, Callable[[np.random.Generator, int, int], bytes]] = {
    Q4_BLOCK: _q4_block,
    Q8_2F: _q8_2f,
    Q1: _q1,
    Q1S: _q1s,
    Q1T: _q1t,
    VBIT: _vbit,
    VBIT_RO: _vbit_ro,
    Q4TP: _q4tp,
    Q2TP: _q2tp,
}
