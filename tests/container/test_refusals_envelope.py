"""Every refusal of the envelope (SPEC 1.2), by the ids of the hostile-file catalogue."""

from __future__ import annotations

import pytest

from builders.cmf import Cmf
from cortiq.container import open_single, verify

U64 = 2**64 - 1
SECTIONS = ("header", "dir", "data", "masks", "vocab", "index")
ABSENT = ("masks", "vocab", "index")


@pytest.mark.parametrize("magic", [b"CMF\x02", b"cmf\x01", b"GGUF", b"PK\x03\x04", b"\0\0\0\0"])
def test_a1_magic(cmf, refuse, magic):
    refuse(cmf.set("magic", magic), "InvalidMagic.magic")


@pytest.mark.parametrize(
    ("head", "hint"),
    [
        (b"GGUF\x03\0\0\0", "GGUF"),
        (b"\x1f\x8b\x08\0", "gzip"),
        (b"PK\x03\x04", "ZIP"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "git-LFS"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (bytes(300), "unfinished"),
    ],
)
def test_l4_magic_of_something_else_is_named(refuse, head, hint):
    assert hint in refuse(head, "InvalidMagic.magic").message


@pytest.mark.parametrize("length", [0, 1, 3, 4, 64, 127])
def test_a2_envelope_short(cmf, refuse, length):
    refuse(bytes(cmf.data[:length]), "Bounds.envelope_short")


@pytest.mark.parametrize("length", [4, 64, 127])
def test_a2_short_file_of_another_kind(refuse, length):
    refuse(b"x" * length, "InvalidMagic.magic")


@pytest.mark.parametrize("version", [0, 1, 3, 0x02000000, 0xFFFFFFFF])
def test_a3_version(cmf, refuse, version):
    refuse(cmf.set("version", version), "UnsupportedVersion.version")


def test_a4_magic_comes_before_version_before_features(cmf, refuse):
    cmf.set("features", U64 >> 32).set("header_len", 0)
    refuse(cmf, "UnsupportedFeature.feature_bit")
    refuse(cmf.set("version", 3), "UnsupportedVersion.version")
    refuse(cmf.set("magic", b"CMF\x02"), "InvalidMagic.magic")


@pytest.mark.parametrize("bit", range(7, 32))
def test_a5_feature_bit_unknown(cmf, refuse, bit):
    error = refuse(cmf.set("features", 0b11 | 1 << bit), "UnsupportedFeature.feature_bit")
    assert f"bit {bit}" in error.message


@pytest.mark.parametrize(("bit", "name"), [(3, "DELTA_MASKS"), (4, "HOT_PACKS")])
def test_a6_feature_bit_reserved(cmf, refuse, bit, name):
    error = refuse(cmf.set("features", 0b11 | 1 << bit), "UnsupportedFeature.feature_bit")
    assert f"bit {bit}" in error.message
    assert name in error.message


def test_a6_loop_masks_are_known(cmf, opened):
    assert opened(cmf.set("features", 0b100011)).envelope.features == 0b100011


def test_a6_skill_file_without_a_bound_record(cmf, refuse):
    refuse(cmf.set("features", 0b1000011), "Parse.skill_file")


def test_a7_no_tensor_dir(cmf, refuse):
    refuse(cmf.set("features", 0b10), "Parse.no_tensor_dir")


def test_a8_flags_open_but_warn(cmf, opened):
    file = opened(cmf.set("flags", 1))
    assert [warning.kind for warning in verify(file).warnings] == ["Parse.flags"]
    assert [problem.kind for problem in verify(file, strict=True).problems] == ["Parse.flags"]


@pytest.mark.parametrize("offset", [0, 64, 127])
def test_a9_section_in_envelope(cmf, refuse, offset):
    refuse(cmf.set("header_off", offset), "Bounds.section_in_envelope")


def test_a10_section_wraps_header(cmf, refuse):
    refuse(cmf.set("header_off", U64).set("header_len", 2), "Bounds.section")


def test_a11_section_wraps_directory(cmf, refuse):
    refuse(cmf.set("dir_off", U64 - 55).set("dir_len", 112), "Bounds.section")


def test_a12_section_wraps_data(cmf, refuse):
    refuse(cmf.set("data_off", U64 - 4095).set("data_len", 8192), "Bounds.section")


@pytest.mark.parametrize("offset", [4097, 2048, 4096 * 2 + 512])
def test_a13_data_align(cmf, refuse, offset):
    refuse(cmf.set("data_off", offset), "Bounds.data_align")


def test_a14_section_in_envelope_data_at_zero(cmf, refuse):
    refuse(cmf.set("data_off", 0), "Bounds.section_in_envelope")


def test_a15_section_empty_data_beyond_the_end(cmf, refuse):
    made = cmf.with_tensors()
    refuse(made.set("data_off", 4096 * 1000), "Bounds.section")


def test_a16_section_one_byte_beyond_the_end(cmf, refuse):
    refuse(cmf.set("index_len", cmf.get("index_len") + 1), "Bounds.section")


@pytest.mark.parametrize("length", [2**63, U64])
@pytest.mark.parametrize("section", SECTIONS)
def test_a16_section_absurdly_long(cmf, refuse, section, length):
    refuse(cmf.set(f"{section}_len", length), "Bounds.section")


def test_a17_header_empty(cmf, refuse):
    refuse(cmf.set("header_len", 0), "Parse.header_empty")


@pytest.mark.parametrize("length", [0, 15])
def test_a17_dir_short(cmf, refuse, length):
    refuse(cmf.set("dir_len", length), "Bounds.dir_short")


@pytest.mark.parametrize("section", ABSENT)
def test_a18_absent_with_length(cmf, refuse, section):
    refuse(cmf.set(f"{section}_off", 0).set(f"{section}_len", 8), "Bounds.absent_with_length")


@pytest.mark.parametrize("section", ABSENT)
def test_a19_offset_without_length_is_absent(cmf, opened, section):
    file = opened(cmf.set(f"{section}_len", 0))
    assert file.section(section) is None
    assert "Parse.absent_with_offset" in [warning.kind for warning in verify(file).warnings]


def test_a20_overlap_header_and_directory(cmf, refuse):
    refuse(cmf.set("dir_off", cmf.get("dir_off") - 1), "Bounds.overlap")


def test_a20_overlap_masks_inside_directory(cmf, refuse):
    refuse(cmf.set("masks_off", cmf.get("dir_off") + 8).set("masks_len", 16), "Bounds.overlap")


def test_a20_overlap_vocab_is_header(cmf, refuse):
    cmf.set("vocab_off", cmf.get("header_off")).set("vocab_len", cmf.get("header_len"))
    refuse(cmf, "Bounds.overlap")


def test_a21_data_may_span_other_sections(cmf, opened):
    cmf.set("data_len", len(cmf.data) - cmf.get("data_off"))
    assert opened(cmf)["model.norm.weight"].nbytes == 128


def test_a22_limit_header(cmf, refuse):
    start = 1 << 20
    cmf.set("header_off", start).set("header_len", 100_000_001)
    refuse(cmf, "Limit.header", size=start + 100_000_001)


def test_a22_limit_directory(cmf, refuse):
    start = 1 << 20
    cmf.set("dir_off", start).set("dir_len", 2**30 + 1)
    refuse(cmf, "Limit.directory", size=start + 2**30 + 1)


def test_a23_limit_vocab_at_first_use(cmf, tmp_path):
    path = cmf.set("vocab_off", 1 << 20).set("vocab_len", 2**31).save(tmp_path / "sparse.cmf")
    with path.open("r+b") as stream:
        stream.truncate((1 << 20) + 2**31)
    with open_single(path) as file, pytest.raises(Exception, match=r"Limit\.vocab"):
        _ = file.tokenizer_json


def test_a23_huge_index_opens(cmf, tmp_path):
    path = cmf.set("index_off", 1 << 20).set("index_len", 2**32).save(tmp_path / "sparse.cmf")
    with path.open("r+b") as stream:
        stream.truncate((1 << 20) + 2**32)
    with open_single(path) as file:
        assert file.envelope.index.nbytes == 2**32


def test_a24_hash_absent(cmf, opened):
    cmf.set("header_hash", 0).put(cmf.data.index(b"llama"), b"LLAMA")
    file = opened(cmf)
    assert verify(file).unhashed == ("header",)
    assert verify(file).ok
    assert [problem.kind for problem in verify(file, require_hashes=True).problems] == ["HashMismatch.absent"]


def test_a25_hash_of_header(cmf, refuse):
    refuse(cmf.set("header_hash", cmf.get("header_hash") ^ 1), "HashMismatch.header")


def test_a25_hash_of_directory(cmf, refuse):
    refuse(cmf.set("dir_hash", cmf.get("dir_hash") ^ 1 << 63), "HashMismatch.directory")


def test_a26_envelope_of_another_file(cmf, tmp_path):
    other = cmf.with_arch(arch_name="other", hidden_size=128)
    swapped = Cmf({}, [], data=other.data[:128] + cmf.data[128:]).save(tmp_path / "swapped.cmf")
    with pytest.raises(Exception, match=r"HashMismatch|Bounds"):
        open_single(swapped)


def test_a27_trailing_bytes_are_dead(cmf, opened):
    cmf.data += b"PK\x03\x04" * 2**14
    file = opened(cmf)
    assert verify(file).dead == 65536
    assert [problem.kind for problem in verify(file, strict=True).problems] == ["Parse.dead_bytes"]


def test_l1_truncation_is_bounds_at_every_length(cmf, tmp_path):
    path = tmp_path / "short.cmf"
    whole = bytes(cmf.data)
    boundaries = {0, 1, 127, 128, *(cmf.get(f"{name}_off") + cmf.get(f"{name}_len") for name in SECTIONS)}
    lengths = {n + d for n in boundaries for d in (-1, 0, 1)} | set(range(0, len(whole), 97))
    for length in sorted(n for n in lengths if 0 <= n < len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(Exception, match=r"^Bounds\."):
            open_single(path)
