"""A: the envelope (SPEC 1, 1.1, 1.2)."""

from __future__ import annotations

from builders.cmf import Cmf
from hostile.damage import U64, chain, content, cut, envelope, fields, flip
from hostile.row import HEADER_HASH, SAME, Case, Row, Sparse

SECTIONS = ("header", "dir", "data", "masks", "vocab", "index")
OPTIONAL = ("masks", "vocab", "index")
SPARSE_AT = 1 << 20


def to_the_end(section: str, extra: int):
    """A length that reaches ``extra`` bytes beyond the end of the file."""
    return envelope(**{f"{section}_len": lambda cmf: len(cmf.data) - cmf.get(f"{section}_off") + extra})


def sparse(section: str, nbytes: int):
    """A section of so many bytes, far behind everything else."""

    def damage(cmf: Cmf) -> Sparse:
        cmf.set(f"{section}_off", SPARSE_AT).set(f"{section}_len", nbytes)
        return Sparse(cmf, SPARSE_AT + nbytes)

    return damage


def envelope_of_another(cmf: Cmf) -> Cmf:
    """Of a file that differs in two values of its header."""
    other = cmf.with_arch(arch_name="other", hidden_size=640)
    assert len(other.data) == len(cmf.data)
    return cmf.put(0, bytes(other.data[:128]))


def moved_section(name: str, over: str):
    return envelope(**{f"{name}_{part}": lambda cmf, part=part: cmf.get(f"{over}_{part}") for part in ("off", "len")})


def absent(section: str) -> Case:
    return Case(
        envelope(**{f"{section}_len": 0}),
        holds=lambda file: file.section(section) is None,
    )


ROWS = (
    Row(
        "A1",
        "magic of something else",
        [envelope(magic=magic) for magic in (b"CMF\x02", b"cmf\x01", b"GGUF", b"PK\x03\x04", b"\0\0\0\0")],
        expected="O InvalidMagic.magic",
        raw=SAME,
    ),
    Row(
        "A2",
        "file shorter than the envelope",
        [
            *(Case(cut(n)) for n in (0, 1, 3, 4, 64, 127)),
            *(Case(content(b"x" * n), raw="O InvalidMagic.magic") for n in (4, 64, 127)),
        ],
        raw="O Bounds.envelope_short",
    ),
    Row(
        "A3",
        "another version",
        [envelope(version=version) for version in (0, 1, 3, 0x02000000, 0xFFFFFFFF)],
        expected="O UnsupportedVersion.version",
        raw=SAME,
    ),
    Row(
        "A4",
        "the order of checks: magic, version, features, ranges",
        [
            Case(envelope(magic=b"CMF\x02", version=3, features=0xFFFFFFFF, header_len=0)),
            Case(envelope(version=3, features=0xFFFFFFFF, header_len=0), expected="O UnsupportedVersion.version"),
            Case(envelope(features=0xFFFFFFFF, header_len=0), expected="O UnsupportedFeature.feature_bit"),
        ],
        expected="O InvalidMagic.magic",
        raw=SAME,
    ),
    Row(
        "A5",
        "an unknown feature bit",
        [Case(envelope(features=0b11 | 1 << bit), says=f"bit {bit}") for bit in range(7, 32)],
        expected="O UnsupportedFeature.feature_bit",
        raw=SAME,
    ),
    Row(
        "A6",
        "reserved feature bits; LOOP_MASKS and SKILL_FILE are known",
        [
            Case(envelope(features=0b01011), says="bit 3 (DELTA_MASKS, reserved)"),
            Case(envelope(features=0b10011), says="bit 4 (HOT_PACKS, reserved)"),
            Case(envelope(features=0b100011), expected="O ok", holds=lambda file: file.envelope.features == 0b100011),
            Case(envelope(features=0b1000011), expected="O Parse.skill_file"),
        ],
        expected="O UnsupportedFeature.feature_bit",
        raw=SAME,
    ),
    Row("A7", "no tensor directory", [envelope(features=0b10)], expected="O Parse.no_tensor_dir", raw=SAME),
    Row(
        "A8",
        "reserved flags set",
        [envelope(flags=1), envelope(flags=0xFFFFFFFF)],
        expected=("O ok", "V warning Parse.flags", "V strict Parse.flags"),
        raw=SAME,
    ),
    Row(
        "A9",
        "a section inside the envelope",
        [
            *(envelope(header_off=offset) for offset in (0, 64, 127)),
            *(envelope(dir_off=offset) for offset in (0, 127)),
            *(envelope(**{f"{name}_off": 127}) for name in OPTIONAL),
        ],
        expected="O Bounds.section_in_envelope",
        raw=SAME,
    ),
    Row(
        "A10",
        "header range wraps 64 bits",
        [envelope(header_off=U64, header_len=2)],
        expected="O Bounds.section",
        raw=SAME,
    ),
    Row(
        "A11",
        "directory range wraps 64 bits",
        [envelope(dir_off=U64 - 55, dir_len=112)],
        expected="O Bounds.section",
        raw=SAME,
    ),
    Row(
        "A12",
        "data range wraps 64 bits",
        [envelope(data_off=U64 - 4095, data_len=8192)],
        expected="O Bounds.section",
        raw=SAME,
    ),
    Row(
        "A13",
        "data section off the page",
        [envelope(data_off=offset) for offset in (4097, 2048, 4096 * 2 + 512)],
        expected="O Bounds.data_align",
        raw=SAME,
    ),
    Row("A14", "data section at 0", [envelope(data_off=0)], expected="O Bounds.section_in_envelope", raw=SAME),
    Row(
        "A15",
        "an empty data section behind the end of the file",
        [lambda cmf: cmf.with_tensors().set("data_off", 4096 * 1000)],
        expected="O Bounds.section",
        raw=SAME,
    ),
    Row(
        "A16",
        "a section reaches beyond the end of the file",
        [
            *(to_the_end(section, 1) for section in SECTIONS),
            *(envelope(**{f"{section}_len": n}) for section in SECTIONS for n in (2**63, U64)),
        ],
        expected="O Bounds.section",
        raw=SAME,
    ),
    Row(
        "A17",
        "no header, no directory",
        [
            Case(envelope(header_len=0), expected="O Parse.header_empty"),
            envelope(dir_len=0),
            envelope(dir_len=15),
        ],
        expected="O Bounds.dir_short",
        raw=SAME,
    ),
    Row(
        "A18",
        "an absent section with a length",
        [envelope(**{f"{section}_off": 0, f"{section}_len": 8}) for section in OPTIONAL],
        expected="O Bounds.absent_with_length",
        raw=SAME,
    ),
    Row(
        "A19",
        "an offset without a length is an absent section",
        [absent(section) for section in OPTIONAL],
        expected=("O ok", "V warning Parse.absent_with_offset"),
        raw=SAME,
    ),
    Row(
        "A20",
        "sections overlap",
        [
            envelope(dir_off=lambda cmf: cmf.get("dir_off") - 1),
            envelope(masks_off=lambda cmf: cmf.get("dir_off") + 8, masks_len=16),
            moved_section("vocab", over="header"),
            moved_section("index", over="masks"),
        ],
        expected="O Bounds.overlap",
        raw=SAME,
    ),
    Row(
        "A21",
        "the data section spans other sections, as after growth",
        [Case(to_the_end("data", 0), holds=lambda file: file["model.norm.weight"].nbytes == 128)],
        expected=("O ok", "V warning Parse.data_len"),
        raw=SAME,
    ),
    Row(
        "A22",
        "a header or directory beyond the reader's limit",
        [
            Case(sparse("header", 100_000_001)),
            Case(sparse("dir", 2**30 + 1), raw="O Limit.directory"),
            Case(sparse("header", 100_000_000), raw=HEADER_HASH),
        ],
        raw="O Limit.header",
    ),
    Row(
        "A23",
        "a huge tokenizer or index opens; the tokenizer is refused at first use",
        [
            Case(sparse("vocab", 2**31), holds=lambda file: file.envelope.vocab.nbytes == 2**31),
            Case(sparse("index", 2**32), holds=lambda file: file.envelope.index.nbytes == 2**32),
            Case(sparse("vocab", 2**31), reads="vocab", raw="O Limit.vocab"),
        ],
        raw="O ok",
    ),
    Row(
        "A24",
        "the hash of the header is zero: absent",
        [
            chain(envelope(header_hash=0), lambda cmf: cmf.put(cmf.data.index(b"llama"), b"LLAMA")),
            Case(envelope(dir_hash=0), raw=("O ok", "V unhashed directory", "V require HashMismatch.absent")),
        ],
        raw=("O ok", "V ok", "V unhashed header", "V require HashMismatch.absent"),
    ),
    Row(
        "A25",
        "a flipped bit in a stored hash, or in what it covers",
        [
            Case(envelope(header_hash=lambda cmf: cmf.get("header_hash") ^ 1)),
            Case(flip(lambda cmf: cmf.data.index(b"llama"))),
            Case(envelope(dir_hash=lambda cmf: cmf.get("dir_hash") ^ 1 << 63), raw="O HashMismatch.directory"),
            Case(flip(lambda cmf: cmf.record(0) + 48), raw="O HashMismatch.directory"),
        ],
        raw=HEADER_HASH,
    ),
    Row(
        "A26",
        "the envelope of another file",
        [
            Case(envelope_of_another),
            Case(lambda cmf: cmf.put(0, bytes(fields(provenance={"x": "y" * 64})(cmf).rehash().data[:128]))),
        ],
        raw=HEADER_HASH,
    ),
    Row(
        "A27",
        "64 KiB behind the last section",
        [Case(lambda cmf: bytes(cmf.data) + b"PK\x03\x04" * 2**14, says="65536")],
        raw=("V strict Parse.dead_bytes", "V warning Parse.dead_bytes"),
    ),
)
