"""Every refusal of the tensor directory (SPEC 1.2, 3, 4), by the ids of the hostile-file catalogue."""

from __future__ import annotations

import pytest

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
    U8,
    VBIT,
    VBIT_RO,
    Cmf,
    T,
    header,
    pattern,
)
from cortiq.container import open_single, tensor_checks, verify
from cortiq.container.directory import encode_directory

U32, U64 = 2**32 - 1, 2**64 - 1
NBYTES = {  # of a [64, 128] tensor; the smallest there is for VBIT, VBIT_RO, Q1S and Q1T
    F32: 32768,
    F16: 16384,
    BF16: 16384,
    Q8_ROW: 8192 + 128,
    Q4_BLOCK: 256 * 18,
    U8: 8192,
    VBIT: 64 + 512 + 64 * 48,
    Q8_2F: 8192 + 128 + 256,
    VBIT_RO: 64 + 512 + 4 * 65 + 64 * 48,
    Q4_TILED: 256 * 18,
    Q1: 256 * 6,
    Q1S: 256 * 6 + 4,
    Q1T: 256 * 9 + 4 * 65,
    Q4TP: 64 * (4 * 16 + 4 + 3),
    Q2TP: 64 * (4 * 8 + 4 + 3),
}
VARIABLE = (VBIT, VBIT_RO, Q1S, Q1T)
MATRIX_ONLY = (VBIT, Q8_2F, VBIT_RO, Q4_TILED, Q1, Q1S, Q1T, Q4TP, Q2TP)
GROUPED = (VBIT, VBIT_RO, Q4_TILED, Q1, Q1S, Q1T, Q4TP, Q2TP)


def single(dtype: int, shape: tuple[int, ...], nbytes: int, name: str | bytes = "t") -> Cmf:
    """A file of one tensor, whose record may say anything about these bytes."""
    return Cmf(header(), [T(name, dtype, shape, pattern(nbytes))]).build()


def claimed(dtype: int, shape: tuple[int, ...], nbytes: int) -> tuple[Cmf, int]:
    """A file whose one tensor claims ``nbytes``, and the size a sparse file needs for that."""
    made = single(dtype, shape, 0)
    made.set("data_len", nbytes).set_record(0, nbytes=nbytes).rehash()
    return made, made.get("data_off") + nbytes


def test_c1_no_records_is_an_empty_directory(cmf, opened):
    assert len(opened(cmf.set_counts(count=0, pool_off=16).rehash())) == 0


@pytest.mark.parametrize("count", [0x0492492492492493, U64, 2**63, 10**6])
def test_c2_c3_dir_count(cmf, refuse, count):
    refuse(cmf.set_counts(count=count).rehash(), "Bounds.dir_count")


def test_c3_one_record_more_reaches_into_the_pool(cmf, refuse):
    refuse(cmf.set_counts(count=len(cmf.tensors) + 1).rehash(), "Bounds.pool")


@pytest.mark.parametrize("pool_off", [0, 8, 16, 16 + 56 * 6 - 1, U64 - 7])
def test_c4_pool(cmf, refuse, pool_off):
    refuse(cmf.set_counts(pool_off=pool_off).rehash(), "Bounds.pool")


def test_c4_pool_after_the_end(cmf, refuse):
    refuse(cmf.set_counts(pool_off=cmf.get("dir_len") + 1).rehash(), "Bounds.pool")


def test_c5_name_offset_wraps(cmf, refuse):
    refuse(cmf.set_record(0, name_off=U32, name_len=2).rehash(), "Bounds.name")


def test_c6_name_one_byte_beyond_the_pool(cmf, refuse):
    refuse(cmf.set_record(5, name_len=cmf.get_record(5, "name_len") + 1).rehash(), "Bounds.name")


def test_c7_name_empty(cmf, refuse):
    refuse(cmf.set_record(2, name_len=0).rehash(), "Parse.name_empty")


@pytest.mark.parametrize("name", [b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
def test_c8_name_utf8(refuse, name):
    refuse(single(F16, (2,), 4, name), "Parse.name_utf8")


@pytest.mark.parametrize("name", ["a/b", "../x", "\u202ename", "模型", "x" * 65_535])
def test_c9_names_are_opaque(opened, name):
    assert list(opened(single(F16, (2,), 4, name))) == [name]


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "\x1b[31m", "a\x7f", "模\x85"])
def test_c9_name_ctrl(refuse, name):
    refuse(single(F16, (2,), 4, name), "Parse.name_ctrl")


def test_c10_name_dup(refuse):
    made = Cmf(header(), [T("a", F16, (2,), b"1234"), T("b", F16, (2,), b"1234"), T("a", F16, (2,), b"5678")])
    error = refuse(made.build(), "Parse.name_dup")
    assert error.tensor == "a"


def test_c10_names_equal_after_normalization_open(opened):
    made = Cmf(header(), [T("e\u0301", F16, (2,), b"1234"), T("\u00e9", F16, (2,), b"5678")]).build()
    assert [warning.kind for warning in verify(opened(made)).warnings] == ["Parse.name_normalization"]


def test_c11_names_may_share_bytes(cmf, opened):
    start = cmf.get_record(0, "name_off")
    made = cmf.set_record(1, name_off=start, name_len=len("model.embed_tokens")).rehash()
    assert list(opened(made))[:2] == ["model.embed_tokens.weight", "model.embed_tokens"]


@pytest.mark.parametrize("dtype", [5, 7, 17, 200, 255])
def test_c12_dtype(cmf, refuse, dtype):
    refuse(cmf.set_record(1, dtype=dtype).rehash(), "Parse.dtype")


def test_c12_dtype_16_is_read(opened):
    assert opened(single(Q2TP, (64, 128), NBYTES[Q2TP]))["t"].dtype == "q2tp"


@pytest.mark.parametrize("ndim", [7, 255])
def test_c13_ndim(cmf, refuse, ndim):
    refuse(cmf.set_record(1, ndim=ndim).rehash(), "Parse.ndim")


@pytest.mark.parametrize(("dtype", "nbytes"), [(F16, 2), (F32, 4), (BF16, 2), (U8, 1)])
def test_c14_scalars_open(opened, dtype, nbytes):
    assert opened(single(dtype, (), nbytes))["t"].shape == ()


@pytest.mark.parametrize("dtype", [Q4_BLOCK, Q8_ROW, *MATRIX_ONLY])
def test_c14_ndim_of_a_quantized_scalar(refuse, dtype):
    refuse(single(dtype, (), 64), "Parse.ndim")


def test_c14_shape_tail_of_a_scalar(refuse):
    refuse(single(F16, (), 2).set_record(0, shape=(3,)).rehash(), "Parse.shape_tail")


@pytest.mark.parametrize("shape", [(64,), (2, 32, 128)])
@pytest.mark.parametrize("dtype", [Q8_ROW, *MATRIX_ONLY])
def test_c15_ndim_dtype(refuse, dtype, shape):
    refuse(single(dtype, shape, NBYTES[dtype]), "Parse.ndim_dtype")


def test_c15_q4_block_may_have_three_dimensions(opened):
    assert opened(single(Q4_BLOCK, (2, 32, 128), NBYTES[Q4_BLOCK]))["t"].shape == (2, 32, 128)


def test_c16_empty_tensors_open(opened):
    assert opened(single(F16, (0, 128), 0))["t"].numpy().shape == (0, 128)


@pytest.mark.parametrize("dtype", [Q4_BLOCK, Q8_ROW, *MATRIX_ONLY])
def test_c16_zero_dim(refuse, dtype):
    refuse(single(dtype, (0, 128), 0), "Parse.zero_dim")


def test_c16_nbytes_of_an_empty_tensor(refuse):
    refuse(single(F16, (0,), 2), "Bounds.nbytes")


def test_c17_shape_tail(cmf, refuse):
    refuse(cmf.set_record(0, shape=(40, 64, 5)).rehash(), "Parse.shape_tail")


@pytest.mark.parametrize(
    ("dtype", "shape", "nbytes"),
    [
        pytest.param(F32, (2**31, 2**31), 0, id="c18"),
        pytest.param(F16, (65536,) * 4, 0, id="c19"),
        pytest.param(F32, (2147485647, 2147481650), 8_573_958_584, id="c20"),
        pytest.param(Q8_2F, (U32, U32), 8_589_934_589, id="c21"),
        pytest.param(Q4_TILED, (U32, 0xFFFFFFE0), 0, id="c22"),
        pytest.param(F16, (U32,) * 6, 0, id="c23"),
        pytest.param(VBIT_RO, (U32, 32), 4096, id="d5"),
    ],
)
def test_c18_to_c23_size_overflow(refuse, dtype, shape, nbytes):
    made, size = claimed(dtype, shape, nbytes)
    refuse(made, "Bounds.size_overflow", size=size)


def test_c24_more_elements_than_32_bits_count(tmp_path):
    made, size = claimed(F16, (2**32 // 64 + 1, 64), 2 * (2**32 + 64))
    path = made.save(tmp_path / "sparse.cmf")
    with path.open("r+b") as stream:
        stream.truncate(size)
    with open_single(path) as file:
        values = file["t"].numpy()
        assert values.size == 2**32 + 64
        assert values[-1, -1] == 0


def test_c25_tensor_wraps(cmf, refuse):
    refuse(cmf.set_record(1, off=U64 - 63, nbytes=128).rehash(), "Bounds.tensor")


def test_c26_tensor_one_byte_beyond_the_data(cmf, refuse):
    refuse(cmf.set("data_len", cmf.get("data_len") - 1), "Bounds.tensor")


def test_c26_empty_tensor_at_the_end_opens(opened):
    made = Cmf(header(), [T("a", F16, (32,), bytes(64)), T("b", F16, (0,), b"")]).build()
    assert opened(made)["b"].entry.off == 64


@pytest.mark.parametrize("offset", [32, 63, 65])
def test_c27_tensor_align(cmf, refuse, offset):
    refuse(cmf.set_record(0, off=offset).rehash(), "Bounds.tensor_align")


@pytest.mark.parametrize("extra", [-1, 1])
@pytest.mark.parametrize("dtype", sorted(set(NBYTES) - set(VARIABLE)))
def test_c28_nbytes(refuse, dtype, extra):
    refuse(single(dtype, (64, 128), NBYTES[dtype] + extra), "Bounds.nbytes")


@pytest.mark.parametrize("dtype", VARIABLE)
def test_c28_nbytes_below_the_minimum(refuse, opened, dtype):
    refuse(single(dtype, (64, 128), NBYTES[dtype] - 1), "Bounds.nbytes")
    assert opened(single(dtype, (64, 128), NBYTES[dtype] + 1))["t"].nbytes == NBYTES[dtype] + 1


@pytest.mark.parametrize("dtype", sorted(NBYTES))
def test_c28_exact_size_opens(opened, dtype):
    assert opened(single(dtype, (64, 128), NBYTES[dtype]))["t"].shape == (64, 128)


def test_c29_tensor_overlap_by_one_byte(refuse):
    made = Cmf(header(), [T("a", U8, (65,), bytes(65)), T("b", U8, (64,), bytes(64))]).build()
    error = refuse(made.set_record(1, off=64).rehash(), "Bounds.tensor_overlap")
    assert error.tensor == "b"


def test_c29_tensor_overlap_nested(refuse):
    tensors = [T("a", U8, (256,), bytes(256)), T("b", U8, (64,), bytes(64)), T("c", U8, (64,), bytes(64))]
    refuse(Cmf(header(), tensors).build().set_record(1, off=128).rehash(), "Bounds.tensor_overlap")
    refuse(Cmf(header(), tensors).build().set_record(2, off=192).rehash(), "Bounds.tensor_overlap")


@pytest.mark.parametrize("field", ["dtype", "shape", "hash"])
def test_c29_tensor_overlap_of_records_that_differ(refuse, field):
    made = Cmf(header(), [T("a", F16, (32,), bytes(64)), T("b", F16, (32,), bytes(64))]).build()
    changed = {"dtype": {"dtype": BF16}, "shape": {"shape": (8, 4), "ndim": 2}, "hash": {"hash": 1}}[field]
    refuse(made.set_record(1, off=0, **changed).rehash(), "Bounds.tensor_overlap")


def test_c30_aliases_open_and_are_reported(opened):
    made = Cmf(header(), [T(f"t{i}", F16, (32,), bytes(64)) for i in range(1000)]).build()
    for i in range(1000):
        made.set_record(i, off=0)
    report = verify(opened(made.rehash()))
    assert report.ok
    assert sum(warning.kind == "Parse.alias" for warning in report.warnings) == 999


@pytest.mark.parametrize("section", ["masks", "vocab", "index"])
def test_c31_tensor_over_section(refuse, section):
    sections = {name: pattern(200) for name in ("masks", "vocab", "index")}
    made = Cmf(header(), [T("t", U8, (64,), bytes(64))], **sections).build()
    made.set("data_len", len(made.data) - made.get("data_off"))
    inside = -(-(made.get(f"{section}_off") - made.get("data_off")) // 64) * 64
    refuse(made.set_record(0, off=inside).rehash(), "Bounds.tensor_over_section")


@pytest.mark.parametrize("section", ["header", "dir"])
def test_c31_tensor_over_moved_section(cmf, refuse, section):
    """The section lies inside the data, where a tensor is."""
    content = cmf.section(section)
    at = cmf.get("data_off") + cmf.get_record(4, "off")
    cmf.put(at, content).set(f"{section}_off", at)
    refuse(cmf.rehash(), "Bounds.tensor_over_section")


@pytest.mark.parametrize("digest", [0, 1])
def test_c32_hash_of_a_tensor_is_for_verify(cmf, opened, digest):
    file = opened(cmf.set_record(3, hash=digest).rehash())
    problems = verify(file).problems
    assert [problem.kind for problem in problems] == ["HashMismatch.tensor"]
    assert problems[0].tensor == "model.layers.0.input_layernorm.weight"


def test_c32_flipped_byte_is_for_verify(cmf, opened):
    at = cmf.get("data_off") + cmf.get_record(4, "off") + 1000
    file = opened(cmf.put(at, bytes([cmf.data[at] ^ 4])))
    assert [problem.tensor for problem in verify(file).problems] == ["model.layers.1.mlp.gate_proj.weight"]


@pytest.mark.parametrize("name", ["model.layers.99999999999.mlp", "model.layers.-1.mlp", "layers.\uff11"])
def test_c33_numbers_in_names_are_not_read(opened, name):
    assert name in opened(single(F16, (2,), 4, name))


@pytest.mark.parametrize("cols", [33, 31, 16, 0])
@pytest.mark.parametrize("dtype", GROUPED)
def test_d6_in_mod_32(refuse, dtype, cols):
    refuse(single(dtype, (64, cols), 4096), "Parse.in_mod_32")


def test_d10_q1s_too_large(refuse):
    refuse(single(Q1S, (2**20, 4128), 64), "Parse.q1s_too_large")


def test_d11_q1t_cols(refuse):
    refuse(single(Q1T, (64, 65_568), 64), "Parse.q1t_cols")


def test_encoding_is_the_opposite_of_parsing(cmf, opened):
    file = opened(cmf)
    assert encode_directory(file.tensors.values()) == file.tensors.raw == cmf.section("dir")


def test_combinations_that_mix_to_the_same_word_are_all_checked(refuse, monkeypatch):
    monkeypatch.setattr(tensor_checks, "_MIX", tensor_checks._MIX * 0)
    made = Cmf(header(), [T(f"t{i}", F16, (i + 1,), bytes(2 * i + 2 + (i == 7))) for i in range(9)]).build()
    assert refuse(made, "Bounds.nbytes").tensor == "t7"
