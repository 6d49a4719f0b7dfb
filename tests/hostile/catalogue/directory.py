"""C1 to C17: counts, names, dtypes and shapes of the directory (SPEC 3, 3.1)."""

from __future__ import annotations

from builders.cmf import BF16, F16, F32, Q4_BLOCK, Q8_ROW, U8, Cmf, T, header
from hostile.catalogue.header_fields import runnable
from hostile.catalogue.sizes import MATRIX_ONLY, NBYTES
from hostile.damage import U32, U64, counts, named, record, single
from hostile.row import DIRECTORY_HASH, Case, Row

TWO_LAYERS = 6  # tensors of the base file


def tensors(*names: str):
    """A base file of small tensors."""
    return lambda: Cmf(header(), [T(name, F16, (2,), bytes([i, 0, 1, 0])) for i, name in enumerate(names)]).build()


def renamed(i: int, name: str):
    """Bytes of the pool where record ``i`` has its name, of the same length."""
    return lambda cmf: cmf.put(cmf.record(len(cmf.tensors)) + cmf.get_record(i, "name_off"), name.encode())


def shape_of(*shape: int, **more) -> Case:
    return Case(more.pop("damage"), expected="O ok", holds=lambda file: file["t"].shape == shape, **more)


ROWS = (
    Row(
        "C1",
        "no records, though the blob has bytes",
        [
            Case(counts(count=0, pool_off=16), holds=lambda file: len(file) == 0),
            Case(lambda _: counts(count=0, pool_off=16)(runnable()), expected="R MissingTensor.tensor"),
        ],
        expected=("O ok", "V strict Parse"),
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C2",
        "a count whose records wrap 64 bits",
        [counts(count=0x0492492492492493)],
        expected="O Bounds.dir_count",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C3",
        "a count beyond the directory",
        [
            *(counts(count=count) for count in (U64, 2**63, 10**6)),
            Case(counts(count=TWO_LAYERS + 1), expected="O Bounds.pool"),
            Case(counts(count=TWO_LAYERS + 1, pool_off=16 + 56 * (TWO_LAYERS + 1)), expected="O Bounds.name"),
        ],
        expected="O Bounds.dir_count",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C4",
        "a pool over the records or outside the directory",
        [
            *(counts(pool_off=offset) for offset in (0, 8, 16, 16 + 56 * TWO_LAYERS - 1, U64 - 7)),
            counts(pool_off=lambda cmf: cmf.get("dir_len") + 1),
        ],
        expected="O Bounds.pool",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C5",
        "a name whose range wraps 32 bits",
        [record(0, name_off=U32, name_len=2)],
        expected="O Bounds.name",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C6",
        "a name one byte beyond the pool",
        [record(TWO_LAYERS - 1, name_len=lambda cmf: cmf.get_record(TWO_LAYERS - 1, "name_len") + 1)],
        expected="O Bounds.name",
        raw=DIRECTORY_HASH,
    ),
    Row("C7", "an empty name", [record(2, name_len=0)], expected="O Parse.name_empty", raw=DIRECTORY_HASH),
    Row(
        "C8",
        "a name that is no UTF-8",
        [named(name) for name in (b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\xf5\x80\x80\x80")],
        expected="O Parse.name_utf8",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C9",
        "names are opaque, but for control characters",
        [
            *(named(name) for name in (b"a\0b", b"a\nb", b"\x1b[31m", b"a\x7f", "模\x85".encode())),
            *(
                Case(
                    named(name.encode()), expected=("O ok", "V ok"), holds=lambda file, name=name: list(file) == [name]
                )
                for name in ("a/b", "../x", "..", "\u202ename", "模型", "x" * 65_535)
            ),
        ],
        expected="O Parse.name_ctrl",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C10",
        "equal names, and names Unicode normalization makes equal",
        [
            Case(renamed(2, "aaa"), says="tensor 'aaa'"),
            Case(
                renamed(2, "\u00e9b"),
                expected=("O ok", "V warning Parse.name_normalization", "V strict Parse.name_normalization"),
            ),
        ],
        expected="O Parse.name_dup",
        raw=DIRECTORY_HASH,
        base=tensors("aaa", "e\u0301b", "ccc"),
    ),
    Row(
        "C11",
        "names may share bytes of the pool",
        [
            Case(
                record(1, name_off=lambda cmf: cmf.get_record(0, "name_off"), name_len=len("model.embed_tokens")),
                holds=lambda file: list(file)[:2] == ["model.embed_tokens.weight", "model.embed_tokens"],
            )
        ],
        expected=("O ok", "V ok"),
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C12",
        "unknown and reserved dtypes; 16 is read",
        [
            *(record(1, dtype=dtype) for dtype in (5, 7, 17, 200, 255)),
            Case(single(16, (64, 128), NBYTES[16]), expected="O ok", holds=lambda file: file["t"].dtype == "q2tp"),
        ],
        expected="O Parse.dtype",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C13",
        "more than six dimensions",
        [record(1, ndim=ndim) for ndim in (7, 255)],
        expected="O Parse.ndim",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C14",
        "scalars",
        [
            *(shape_of(damage=single(dtype, (), nbytes)) for dtype, nbytes in ((F16, 2), (F32, 4), (BF16, 2))),
            shape_of(damage=single(U8, (), 1)),
            *(single(dtype, (), 64) for dtype in (Q4_BLOCK, *MATRIX_ONLY)),
            Case(lambda cmf: single(F16, (), 2)(cmf).set_record(0, shape=(3,)), expected="O Parse.shape_tail"),
        ],
        expected="O Parse.ndim",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C15",
        "other than two dimensions for dtypes of matrices; q4_block may have three",
        [
            *(single(dtype, shape, NBYTES[dtype]) for dtype in MATRIX_ONLY for shape in ((64,), (2, 32, 128))),
            shape_of(2, 32, 128, damage=single(Q4_BLOCK, (2, 32, 128), NBYTES[Q4_BLOCK])),
        ],
        expected="O Parse.ndim_dtype",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C16",
        "empty tensors",
        [
            *(single(dtype, (0, 128), 0) for dtype in (Q4_BLOCK, *MATRIX_ONLY)),
            Case(single(F16, (0,), 2), expected="O Bounds.nbytes"),
            Case(
                single(F16, (0, 128), 0),
                expected="O ok",
                holds=lambda file: file["t"].numpy().shape == (0, 128),
            ),
            Case(single(Q8_ROW, (64, 0), 128), expected="O Parse.zero_dim"),
        ],
        expected="O Parse.zero_dim",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C17",
        "an unused dimension that is not zero",
        [record(0, shape=(40, 64, 5)), record(0, shape=(40, 64, 0, 0, 0, 1)), record(1, ndim=0)],
        expected="O Parse.shape_tail",
        raw=DIRECTORY_HASH,
    ),
)
