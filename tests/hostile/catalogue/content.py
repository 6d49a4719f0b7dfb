"""D: what the bytes of a quantized tensor may be (SPEC 3.2). Payloads are made by hand, valid before the damage."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from builders.cmf import (
    BF16,
    F16,
    F32,
    Q1,
    Q1S,
    Q1T,
    Q2TP,
    Q4_BLOCK,
    Q4_TILED,
    Q4TP,
    Q8_2F,
    Q8_ROW,
    VBIT,
    VBIT_RO,
    Cmf,
    T,
    header,
)
from cortiq.container import File
from hostile.catalogue.sizes import GROUPED
from hostile.damage import U32, claimed, payload, resized, single
from hostile.row import DIRECTORY_HASH, TENSOR_HASH, Case, Damage, Row

WIDTHS = (4, 6, 3, 8)
ROWS_N, COLS, GROUPS = len(WIDTHS), 64, 2
PACKED = [COLS * width // 8 for width in WIDTHS]
VBIT_HEAD = ROWS_N + 2 * ROWS_N * GROUPS
Q1S_COUNT = 6 * ROWS_N * GROUPS
Q1T_ROWS = 9 * ROWS_N * GROUPS
LADDER = 16 * ROWS_N * GROUPS
Q2_LADDER = 8 * ROWS_N * GROUPS
ONE, HALF = struct.pack("<e", 1.0), struct.pack("<e", 0.5)
NAN, INF, MINUS_ZERO, TINY = b"\x00\x7e", b"\x00\x7c", b"\x00\x80", b"\x01\x00"


def of(dtype: int, data: bytes, shape: tuple[int, ...] = (ROWS_N, COLS)):
    """A base file of one tensor."""
    return lambda: Cmf(header(), [T("t", dtype, shape, data)]).build()


def base_of(dtype: int, data: bytes, shape: tuple[int, ...] = (ROWS_N, COLS)) -> Damage:
    """That file in place of another."""
    return lambda _: of(dtype, data, shape)()


def scales(count: int) -> bytes:
    return ONE * count


def vbit() -> bytes:
    return bytes(WIDTHS) + scales(ROWS_N * GROUPS) + bytes(sum(PACKED))


def vbit_ro() -> bytes:
    offsets = np.cumsum([0, *PACKED]).astype("<u4").tobytes()
    return bytes(WIDTHS) + scales(ROWS_N * GROUPS) + offsets + bytes(sum(PACKED))


def q1() -> bytes:
    return (ONE + b"\x55" * 4) * (ROWS_N * GROUPS)


def q1s(entries: Sequence[int]) -> bytes:
    """Outliers at these flat indices."""
    return q1() + struct.pack("<I", len(entries)) + b"".join(struct.pack("<I", i) + HALF for i in entries)


def q1t(columns: Sequence[Sequence[int]]) -> bytes:
    """Outliers at these columns of each row."""
    starts = np.cumsum([0, *map(len, columns)]).astype("<u4").tobytes()
    entries = b"".join(struct.pack("<H", column) + HALF for row in columns for column in row)
    return (ONE + b"\x55" * 6 + b"\x08") * (ROWS_N * GROUPS) + starts + entries


def ladder(nbytes: int, padding: int = 0) -> bytes:
    """q4tp or q2tp with so many bytes of weights; a row's two 5-bit codes leave 6 bits of its second byte over."""
    return bytes(nbytes) + struct.pack("<ee", -3.0, 0.25) * ROWS_N + struct.pack("<BB", 0, padding << 2) * ROWS_N


def u32(at: int, value: int) -> Damage:
    return payload(at, struct.pack("<I", value))


def fine(damage: Damage, **more) -> Case:
    return Case(damage, expected=("O ok", "T ok"), **more)


def whole(dtype: int, shape: tuple[int, ...], data: bytes, **more) -> Case:
    """A file of this one tensor, right in every respect a reader may judge."""
    return fine(base_of(dtype, data, shape), raw=("O ok", "T ok"), **more)


def padded(dtype: int, shape: tuple[int, ...], data: bytes, *, says: str = "", code: str = "") -> Case:
    """Right, with bits that belong to no weight and are not those of zero."""
    code = code or {Q4TP: "q4tp_padding", Q4_BLOCK: "q4_block_padding"}[dtype]
    warned = ("O ok", "T ok", f"V warning Parse.{code}")
    return Case(base_of(dtype, data, shape), raw=warned, says=says)


def unpadded(dtype: int, shape: tuple[int, ...], data: bytes) -> Case:
    """Right, and nothing is odd."""
    return Case(base_of(dtype, data, shape), raw=("O ok", "T ok", "V strict ok"))


NOT_FINITE = "NonFinite.value"
SCALED = [  # dtype, the payload around one scale
    (Q8_ROW, lambda scale: bytes(ROWS_N * COLS) + ONE * (ROWS_N - 1) + scale),
    (Q4_BLOCK, lambda scale: bytes(ROWS_N * COLS // 2) + ONE * (ROWS_N * GROUPS - 1) + scale),
    (Q4_TILED, lambda scale: (ONE + bytes(16)) * (ROWS_N * GROUPS - 1) + scale + bytes(16)),
    (Q1, lambda scale: q1()[:-6] + scale + bytes(4)),
    (Q8_2F, lambda scale: bytes(ROWS_N * COLS) + ONE * (ROWS_N + COLS - 1) + scale),
]
SIGNALLING = [
    (F32, struct.pack("<II", 0x7F800001, 0xFFA00000)),
    (F16, struct.pack("<HHHH", 0x7C01, 0xFD00, 0x7FFF, 0x0001)),
    (BF16, struct.pack("<HHHH", 0x7F81, 0xFFA0, 0x7FFF, 0x0001)),
]


def kept(file: File, data: bytes) -> bool:
    """The bytes of the tensor, also in the array it gives; of bf16, which is widened, in the upper halves."""
    tensor = file["t"]
    words = tensor.numpy().view(np.uint32) >> 16 if tensor.dtype == "bf16" else tensor.numpy()
    given = words.astype("<u2") if tensor.dtype == "bf16" else words
    return bytes(tensor.raw) == given.tobytes() == data


def signalling(dtype: int, data: bytes) -> Case:
    return whole(dtype, (len(data) // (4 if dtype == F32 else 2),), data, holds=lambda file: kept(file, data))


ROWS = (
    Row(
        "D1",
        "vbit: a width that does not exist",
        [payload(1, bytes([width])) for width in (0, 1, 2, 7, 9, 255)],
        expected=("O ok", "T Parse.vbit_bits"),
        raw=TENSOR_HASH,
        base=of(VBIT, vbit()),
    ),
    Row(
        "D2",
        "vbit: a wider row in the same bytes, and bytes to spare",
        [payload(2, b"\x08"), Case(resized(1), raw=DIRECTORY_HASH)],
        expected=("O ok", "T Bounds.vbit_size"),
        raw=TENSOR_HASH,
        base=of(VBIT, vbit()),
    ),
    Row(
        "D3",
        "vbit: widths of two rows exchanged, only the hash can tell",
        [payload(0, bytes([6, 4]))],
        expected=("O ok", "T ok"),
        raw=TENSOR_HASH,
        base=of(VBIT, vbit()),
    ),
    Row(
        "D4",
        "vbit_ro: row offsets against the widths",
        [
            u32(VBIT_HEAD, 1),
            u32(VBIT_HEAD + 4, 0),
            u32(VBIT_HEAD + 4, U32),
            u32(VBIT_HEAD + 8, PACKED[0] + PACKED[1] + 1),
            u32(VBIT_HEAD + 4 * ROWS_N, sum(PACKED) - 1),
        ],
        expected=("O ok", "T Bounds.vbit_offsets"),
        raw=TENSOR_HASH,
        base=of(VBIT_RO, vbit_ro()),
    ),
    Row(
        "D5",
        "vbit_ro: rows + 1 wraps 32 bits",
        [claimed(VBIT_RO, (U32, 32), 4096)],
        expected="O Bounds.size_overflow",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "D6",
        "columns that are no whole groups of 32",
        [single(dtype, (64, cols), 4096) for dtype in GROUPED for cols in (33, 31, 16, 0)],
        expected="O Parse.in_mod_32",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "D7",
        "q1s: no room for the count",
        [single(Q1S, (ROWS_N, COLS), Q1S_COUNT + n) for n in (0, 1, 3)],
        expected="O Bounds.nbytes",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "D8",
        "q1s: a count that is not the outliers there are",
        [
            u32(Q1S_COUNT, U32),
            u32(Q1S_COUNT, 4),
            u32(Q1S_COUNT, 2),
            Case(resized(1), raw=DIRECTORY_HASH),
            Case(resized(-1), raw=DIRECTORY_HASH),
        ],
        expected=("O ok", "T Bounds.q1s_count"),
        raw=TENSOR_HASH,
        base=of(Q1S, q1s([0, 5, 9])),
    ),
    Row(
        "D9",
        "q1s: an index outside the tensor; repeated and unsorted ones",
        [
            u32(Q1S_COUNT + 4, ROWS_N * COLS),
            u32(Q1S_COUNT + 10, U32),
            fine(u32(Q1S_COUNT + 16, ROWS_N * COLS - 1)),
            Case(u32(Q1S_COUNT + 10, 0), expected=("O ok", "T ok", "V warning Parse.q1s_order")),
            Case(u32(Q1S_COUNT + 16, 3), expected=("O ok", "T ok", "V warning Parse.q1s_order")),
        ],
        expected=("O ok", "T Bounds.q1s_index"),
        raw=TENSOR_HASH,
        base=of(Q1S, q1s([0, 5, 9])),
    ),
    Row(
        "D10",
        "q1s: more weights than its indices reach",
        [single(Q1S, (2**20, 4128), 64), single(Q1S, (2**27 + 1, 32), 64)],
        expected="O Parse.q1s_too_large",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "D11",
        "q1t: more columns than its indices reach",
        [single(Q1T, (64, cols), 64) for cols in (65_568, 2**20)],
        expected="O Parse.q1t_cols",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "D12",
        "q1t: outlier counts of the rows",
        [
            u32(Q1T_ROWS, 1),
            u32(Q1T_ROWS + 4, U32),
            u32(Q1T_ROWS + 8, 0),
            u32(Q1T_ROWS + 4 * ROWS_N, 3),
            Case(resized(4), raw=DIRECTORY_HASH),
            Case(resized(1), raw=DIRECTORY_HASH),
        ],
        expected=("O ok", "T Bounds.q1t_row_ptr"),
        raw=TENSOR_HASH,
        base=of(Q1T, q1t([[0], [5, 9], [], [63]])),
    ),
    Row(
        "D13",
        "q1t: a column outside the tensor",
        [
            *(payload(Q1T_ROWS + 4 * (ROWS_N + 1), struct.pack("<H", column)) for column in (COLS, 65535)),
            fine(payload(Q1T_ROWS + 4 * (ROWS_N + 1), struct.pack("<H", COLS - 1))),
        ],
        expected=("O ok", "T Bounds.q1t_col"),
        raw=TENSOR_HASH,
        base=of(Q1T, q1t([[0], [5, 9], [], [63]])),
    ),
    Row(
        "D14",
        "q1t: a byte that is not five ternary digits; digits that belong to no weight",
        [
            *(payload(at, bytes([code])) for at in (2, 8) for code in (243, 255)),
            *(
                Case(
                    payload(Q1T_ROWS - 1, bytes([code])),
                    expected=("O ok", "T ok", "V warning Parse.q1t_padding"),
                    says="row 3",
                )
                for code in (9, 242)
            ),
            Case(payload(8, b"\x00"), expected=("O ok", "T ok", "V strict ok")),
        ],
        expected=("O ok", "T Parse.q1t_code"),
        raw=TENSOR_HASH,
        base=of(Q1T, q1t([[0], [5, 9], [], [63]])),
    ),
    Row(
        "D15",
        "q4tp and q2tp: a ladder that is not finite",
        [
            *(payload(LADDER + at, value) for at in (0, 2, 4 * ROWS_N - 2) for value in (NAN, INF, b"\x00\xfc")),
            *(Case(lambda _, at=at: payload(Q2_LADDER + at, NAN)(of(Q2TP, ladder(Q2_LADDER))())) for at in (0, 2)),
        ],
        expected=("O ok", "T Parse.q4tp_ladder"),
        raw=TENSOR_HASH,
        base=of(Q4TP, ladder(LADDER)),
    ),
    Row(
        "D16",
        "q4tp: a ladder beyond f32 is refused, one that falls or vanishes is legal",
        [
            payload(LADDER, struct.pack("<e", 127.5)),
            payload(LADDER, struct.pack("<ee", 0.0, 4.25)),
            fine(payload(LADDER, struct.pack("<ee", -160.0, 0.25))),
            fine(payload(LADDER, struct.pack("<ee", 0.0, -0.5))),
            fine(payload(LADDER, struct.pack("<ee", 96.0, 1.0))),
        ],
        expected=("O ok", "T Parse.q4tp_ladder"),
        raw=TENSOR_HASH,
        base=of(Q4TP, ladder(LADDER)),
    ),
    Row(
        "D17",
        "q4tp: bits behind the last code",
        [
            padded(Q4TP, (ROWS_N, COLS), ladder(LADDER, padding=63), says="row 0"),
            padded(Q4TP, (ROWS_N, COLS), ladder(LADDER)[:-1] + b"\x04", says="row 3"),
            padded(Q2TP, (ROWS_N, COLS), ladder(Q2_LADDER, padding=32), code="q2tp_padding"),
            unpadded(Q4TP, (ROWS_N, COLS), ladder(LADDER)[:-1] + b"\x03"),
            unpadded(Q4TP, (1, 256), bytes(128) + struct.pack("<ee", -3.0, 0.25) + b"\xff" * 5),
        ],
    ),
    Row(
        "D18",
        "scales that are NaN, infinite, -0 or subnormal: values are not judged",
        [
            Case(base_of(dtype, around(scale)), raw=("O ok", "T ok", f"V values {found}"))
            for dtype, around in SCALED
            for scale, found in ((NAN, NOT_FINITE), (INF, NOT_FINITE), (MINUS_ZERO, "ok"), (TINY, "ok"))
        ],
        later="sampling from logits that are not finite",
    ),
    Row(
        "D19",
        "q8_row: -128 is a value",
        [
            whole(
                Q8_ROW,
                (ROWS_N, COLS),
                b"\x80" * (ROWS_N * COLS) + ONE * ROWS_N,
                holds=lambda file: (file["t"].numpy() == -128).all(),
            )
        ],
    ),
    Row(
        "D20",
        "q4_block: nibbles behind the last weight",
        [
            *(
                padded(Q4_BLOCK, (1, 33), b"\x88" * 16 + last + ONE * 2, says="expected 8")
                for last in (b"\xff" * 16, b"\x18" + b"\x88" * 15, b"\x88" * 15 + b"\x98")
            ),
            *(
                unpadded(Q4_BLOCK, (1, 33), b"\xff" * 16 + last + ONE * 2)
                for last in (b"\x8f" + b"\x88" * 15, b"\x0f" + bytes(15))
            ),
            unpadded(Q4_BLOCK, (1, 32), b"\xff" * 16 + ONE),
        ],
    ),
    Row(
        "D21",
        "signalling NaNs keep their bits",
        [signalling(dtype, data) for dtype, data in SIGNALLING],
    ),
)
