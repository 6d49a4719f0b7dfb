"""C18 to C35: sizes and ranges of tensors, and what running needs of them (SPEC 1.2, 3, 4)."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from builders.cmf import BF16, F16, F32, Q4_TILED, Q8_2F, U8, Cmf, T, header, pattern
from cortiq.container import File
from cortiq.layouts import layout
from cortiq.layouts.native import decode_rows
from hostile.catalogue.header_fields import runnable
from hostile.catalogue.sizes import NBYTES, VARIABLE
from hostile.damage import U32, U64, claimed, envelope, flip, named, record, single
from hostile.row import DIRECTORY_HASH, TENSOR_HASH, Case, Row, Sparse

HUGE = 2**32 // 64 + 1  # rows of 64 with more elements than 32 bits count
LAYER = "model.layers.0."


def bytes_of(*sizes: int):
    """A base file of u8 tensors called a, b, c."""
    return lambda: Cmf(header(), [T("abc"[i], U8, (n,), pattern(n, i)) for i, n in enumerate(sizes)]).build()


def equal_halves() -> Cmf:
    """Two f16 tensors of the same bytes."""
    return Cmf(header(), [T(name, F16, (32,), bytes(64)) for name in "ab"]).build()


def aliases() -> Cmf:
    return Cmf(header(), [T(f"t{i}", F16, (32,), bytes(64)) for i in range(10_000)]).build()


def all_at_0(cmf: Cmf) -> Cmf:
    for i in range(len(cmf.tensors)):
        cmf.set_record(i, off=0)
    return cmf.set("data_len", 64)


def spanned() -> Cmf:
    """One tensor, and sections of 200 bytes the data section spans."""
    made = Cmf(header(), [T("t", U8, (64,), bytes(64))], **{n: pattern(200) for n in ("masks", "vocab", "index")})
    made.build()
    return made.set("data_len", len(made.data) - made.get("data_off"))


def over(section: str):
    """The tensor moved to the first aligned byte of a section."""

    def damage(cmf: Cmf) -> Cmf:
        return cmf.set_record(0, off=-(-(cmf.get(f"{section}_off") - cmf.get("data_off")) // 64) * 64)

    return damage


def under(section: str):
    """Header or directory copied to where a tensor is."""

    def damage(cmf: Cmf) -> Cmf:
        at = cmf.get("data_off") + cmf.get_record(4, "off")
        return cmf.put(at, cmf.section(section)).set(f"{section}_off", at)

    return damage


def behind_the_section(nbytes: int, off: int) -> Cmf:
    """The only tensor moved to the end of a section that lies from 64 to 256 of the data, or, empty, into it."""
    made = Cmf(header(), [T("t", U8, (64,), pattern(64))], vocab=pattern(192)).build()
    made.data += bytes(64)
    made.set("data_len", len(made.data) - made.get("data_off"))
    return made.set_record(0, shape=(nbytes,), nbytes=nbytes, off=off)


def data_in_the_header(cmf: Cmf) -> Cmf:
    """The data section moved back to a page of a long header."""
    return cmf.with_header(provenance={"text": "x" * 50_000}).set("data_off", 4096)


def huge(cmf: Cmf) -> Sparse:
    made = claimed(F16, (HUGE, 64), 2 * HUGE * 64)(cmf)
    assert isinstance(made, Sparse)
    return made


def one_at_the_end(path: Path) -> Path:
    """1 as the last weight."""
    with path.open("r+b") as stream:
        stream.seek(-2, os.SEEK_END)
        stream.write(struct.pack("<e", 1.0))
    return path


def reads_the_end(file: File) -> bool:
    """The last row, as the definition, the decoder and the operators of a model see it."""
    from cortiq.native import core
    from cortiq.ops import linear

    tensor, last, isa = file["t"], np.zeros(64, np.float32), core.best_isa()
    last[-1] = 1
    matrix = linear.Matrix(F16, tensor.raw, *tensor.shape)
    rows = [
        tensor.numpy()[-1],
        decode_rows(layout(F16), tensor.raw, tensor.shape, HUGE - 1, HUGE)[0],
        linear.gather(matrix, HUGE - 1, isa=isa),
    ]
    product = linear.linear(matrix, np.ones((1, 64), np.float32), isa=isa, first_row=HUGE - 1)
    return product[0, -1] == 1 and all(np.array_equal(row, last) for row in rows)


def without(name: str):
    return lambda cmf: cmf.with_tensors(*(t for t in cmf.tensors if t.name != name))


def replaced(name: str, dtype: int, shape: tuple[int, ...], nbytes: int):
    """One tensor of another dtype and shape."""

    def damage(cmf: Cmf) -> Cmf:
        made = T(name, dtype, shape, bytes(nbytes))
        return cmf.with_tensors(*(made if t.name == name else t for t in cmf.tensors))

    return damage


def extra(name: str):
    return lambda cmf: cmf.with_tensors(*cmf.tensors, T(name, F32, (1,), bytes(4)))


def wrong_shapes() -> Iterator[Case]:
    """The gate's rows are the width, so the other matrices are those that contradict it."""
    for name, rows, cols, says in (
        ("model.embed_tokens.weight", 7, 32, "expected [8, 32], found [7, 32]"),
        ("lm_head.weight", 7, 32, "expected [8, 32], found [7, 32]"),
        (LAYER + "mlp.gate_proj.weight", 31, 32, "expected [31, 32], found [32, 32]"),
        (LAYER + "mlp.up_proj.weight", 33, 32, "expected [32, 32], found [33, 32]"),
        (LAYER + "mlp.down_proj.weight", 32, 31, "expected [32, 32], found [32, 31]"),
        (LAYER + "self_attn.q_proj.weight", 16, 32, "found [16, 32]"),
    ):
        yield Case(replaced(name, F32, (rows, cols), 4 * rows * cols), says=says)


ROWS = (
    *(
        Row(f"C{18 + i}", what, [claimed(*facts)], expected="O Bounds.size_overflow", raw=DIRECTORY_HASH)
        for i, (what, facts) in enumerate(
            (
                ("f32, its bytes wrap to 0", (F32, (2**31, 2**31), 0)),
                ("f16, its elements wrap to 0", (F16, (65536,) * 4, 0)),
                ("f32, its bytes wrap to the size it states", (F32, (2147485647, 2147481650), 8_573_958_584)),
                ("q8_2f, its bytes wrap to the size it states", (Q8_2F, (U32, U32), 8_589_934_589)),
                ("q4_tiled, more than 2^63 elements", (Q4_TILED, (U32, 0xFFFFFFE0), 0)),
                ("six dimensions of 2^32 - 1", (F16, (U32,) * 6, 0)),
            )
        )
    ),
    Row(
        "C24",
        "more elements than 32 bits count",
        [Case(huge, place=one_at_the_end, holds=reads_the_end)],
        expected="O ok",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C25",
        "a tensor whose range wraps 64 bits",
        [record(1, off=U64 - 63, nbytes=128)],
        expected="O Bounds.tensor",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C26",
        "a tensor one byte beyond the data section; an empty one at its end",
        [
            Case(envelope(data_len=lambda cmf: cmf.get("data_len") - 1), raw="O Bounds.tensor"),
            record(1, off=lambda cmf: -(-cmf.get("data_len") // 64) * 64),
            Case(
                lambda _: Cmf(header(), [T("a", F16, (32,), bytes(64)), T("b", F16, (0,), b"")]).build(),
                holds=lambda file: file["b"].entry.off == 64,
                expected=("O ok", "V ok"),
                raw=("O ok", "V ok"),
            ),
        ],
        expected="O Bounds.tensor",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C27",
        "a tensor off its alignment",
        [record(0, off=offset) for offset in (1, 32, 63, 65)],
        expected="O Bounds.tensor_align",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C28",
        "nbytes one more or less than the shape gives, for every dtype",
        [
            *(
                single(dtype, (64, 128), NBYTES[dtype] + extra)
                for dtype in sorted(set(NBYTES) - set(VARIABLE))
                for extra in (-1, 1)
            ),
            *(single(dtype, (64, 128), NBYTES[dtype] - 1) for dtype in VARIABLE),
            *(
                Case(single(dtype, (64, 128), nbytes), expected="O ok", holds=lambda file: file["t"].shape == (64, 128))
                for dtype, nbytes in sorted(NBYTES.items())
            ),
            *(
                Case(
                    single(dtype, (64, 128), NBYTES[dtype] + 1),
                    expected="O ok",
                    holds=lambda file, n=NBYTES[dtype] + 1: file["t"].nbytes == n,
                )
                for dtype in VARIABLE
            ),
        ],
        expected="O Bounds.nbytes",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C29",
        "tensors that share bytes without being the same",
        [
            Case(record(1, off=192), says="tensor 'b'"),
            record(1, off=128),
            record(2, off=192),
            *(
                Case(lambda _, values=values: equal_halves().set_record(1, off=0, **values), deep=False)
                for values in (
                    {"dtype": BF16},
                    {"shape": (8, 4), "ndim": 2},
                    {"hash": 1},
                )
            ),
        ],
        expected="O Bounds.tensor_overlap",
        raw=DIRECTORY_HASH,
        base=bytes_of(193, 64, 64),
    ),
    Row(
        "C30",
        "10,000 records of the same bytes",
        [Case(all_at_0, says="shares its bytes")],
        expected=("O ok", "V warning Parse.alias"),
        raw=DIRECTORY_HASH,
        base=aliases,
        later="a limit on decoding them all: nothing does so at once yet",
    ),
    Row(
        "C31",
        "a tensor over another live section",
        [
            *(Case(lambda _, section=s: over(section)(spanned())) for s in ("masks", "vocab", "index")),
            *(Case(under(section), raw="O Bounds.tensor_over_section") for section in ("header", "dir")),
            Case(data_in_the_header, raw="O Bounds.tensor_over_section"),
            Case(lambda _: behind_the_section(64, 256), expected=("O ok", "V ok")),
            Case(lambda _: behind_the_section(0, 128), expected=("O ok", "V ok")),
        ],
        expected="O Bounds.tensor_over_section",
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C32",
        "a tensor that is not what its hash says: verifying finds it by name",
        [
            *(
                Case(record(3, hash=digest), deep=False, says="tensor 'model.layers.0.input_layernorm.weight'")
                for digest in (0, 1, 2**64 - 1)
            ),
            Case(
                record(3, hash=lambda cmf: cmf.get_record(1, "hash")),
                deep=False,
                says="tensor 'model.layers.0.input_layernorm.weight'",
            ),
            Case(
                flip(lambda cmf: cmf.get("data_off") + cmf.get_record(4, "off") + 1000),
                says="tensor 'model.layers.1.mlp.gate_proj.weight'",
                expected="",
                raw=("O ok", TENSOR_HASH),
            ),
        ],
        expected=("O ok", TENSOR_HASH),
        raw=DIRECTORY_HASH,
    ),
    Row(
        "C33",
        "numbers in names",
        [
            *(
                Case(named(name.encode()), holds=lambda file, name=name: name in file)
                for name in ("model.layers.99999999999.mlp", "model.layers.-1.mlp", "layers.\uff11")
            ),
            *(
                Case(
                    lambda _, index=index: extra(f"model.layers.{index}.mlp.up_proj.weight")(runnable()),
                    expected=("O ok", "R Parse.layer_index"),
                    raw="O ok",
                )
                for index in ("99999999999", "-1", "01", "1", "\uff11", "4294967296", "")
            ),
        ],
        expected="O ok",
        raw=DIRECTORY_HASH,
        later="experts' numbers, with mixtures of experts",
    ),
    Row(
        "C34",
        "a tensor missing, unknown, or of another shape",
        [
            Case(without("lm_head.weight"), expected=("O ok", "R MissingTensor.tensor")),
            Case(without(LAYER + "mlp.up_proj.weight"), expected=("O ok", "R MissingTensor.tensor")),
            Case(extra(LAYER + "mlp.more.weight"), expected=("O ok", "R UnsupportedArch.tensor")),
            *wrong_shapes(),
        ],
        expected=("O ok", "R ShapeMismatch.shape"),
        base=runnable,
        later="router rows, with mixtures of experts; embedding rows against tokenizer ids",
    ),
    Row(
        "C35",
        "a dtype that cannot play the tensor's part",
        [
            replaced(LAYER + "self_attn.q_proj.weight", U8, (32, 32), 32 * 32),
            Case(
                replaced(LAYER + "self_attn.q_proj.weight", F16, (1024,), 2048),
                expected=("O ok", "R ShapeMismatch.shape"),
            ),
        ],
        expected=("O ok", "R Parse.dtype_role"),
        base=runnable,
        later="a norm stored as q8_row",
    ),
)
