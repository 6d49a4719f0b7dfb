"""B1 to B9: the header as text and as a JSON document (SPEC 2)."""

from __future__ import annotations

from functools import partial

from hostile.damage import fields, header_text, in_arch, raw_header, with_field
from hostile.row import HEADER_HASH, Case, Row

TEXT = header_text()


def nested(levels: int) -> bytes:
    return with_field('"x": ' + "[" * levels + "]" * levels)


def opened(levels: int) -> bytes:
    return b"[" * levels


def opens(raw: bytes, **more) -> Case:
    return Case(raw_header(raw), expected="O ok", **more)


ROWS = (
    Row(
        "B1",
        "bytes that are no UTF-8",
        [
            *(
                raw_header(with_field('"x": "@"').replace(b"@", bad))
                for bad in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80")
            ),
            raw_header(TEXT.encode() + b"\xe2\x82"),
        ],
        expected="O Parse.utf8",
        raw=HEADER_HASH,
    ),
    Row(
        "B2",
        "another encoding, or a BOM",
        [
            raw_header(TEXT.encode(encoding))
            for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-8-sig")
        ],
        expected="O Parse.utf8",
        raw=HEADER_HASH,
    ),
    Row(
        "B3",
        "deep nesting",
        [
            *(raw_header(partial(nested, n)) for n in (64, 1_100, 1_000_000)),
            *(raw_header(partial(opened, n)) for n in (65, 1_100, 1_000_000)),
            raw_header(with_field('"x": ' + '{"a":' * 64 + "1" + "}" * 64)),
            opens(nested(63), holds=lambda file: "x" in file.header),
            opens(with_field(r'"x": "\"' + "[{" * 200 + r'\\"'), holds=lambda file: "x" in file.header),
        ],
        expected="O Parse.depth",
        raw=HEADER_HASH,
    ),
    Row(
        "B4",
        "duplicate keys",
        [
            raw_header(with_field('"version": 2')),
            raw_header(with_field('"unknown": 1, "unknown": 2')),
            raw_header(in_arch('"hidden_size": 64')),
            raw_header(with_field('"arch": {}')),
            raw_header(with_field('"skills": [{"id": "a", "id": "b"}]')),
            raw_header(with_field(r'"unknown": 1, "\u0075nknown": 2')),
        ],
        expected="O Parse.dup_key",
        raw=HEADER_HASH,
    ),
    Row(
        "B5",
        "numbers that are not finite",
        [
            raw_header(made)
            for number in ("NaN", "Infinity", "-Infinity", "1e400", "-1e400")
            for made in (with_field(f'"x": {number}'), in_arch(f'"sliding_window": {number}'))
        ],
        expected="O Parse.nonfinite",
        raw=HEADER_HASH,
    ),
    Row(
        "B6",
        "integers beyond what a field can mean",
        [
            raw_header(with_field('"x": ' + "1" * 5000)),
            *(
                raw_header(made)
                for number in ("1" * 4000, str(2**64), str(2**53 + 1))
                for made in (
                    in_arch(f'"sliding_window": {number}'),
                    with_field(f'"shard": {{"no": 1, "count": {number}}}'),
                )
            ),
            raw_header(TEXT.replace('"num_layers": 2', f'"num_layers": {2**64}').encode()),
            Case(raw_header(in_arch(f'"sliding_window": {2**53}')), expected="O Parse.arch"),
            opens(with_field('"x": ' + "1" * 4000), holds=lambda file: file.header["x"] > 2**64),
        ],
        expected="O Parse.int_range",
        raw=HEADER_HASH,
    ),
    Row(
        "B7",
        "text that is not one JSON document",
        [
            *(
                raw_header(raw)
                for raw in (
                    TEXT.encode() + b"\0\0",
                    TEXT.encode() + b"{}",
                    TEXT[:-1].encode() + b",}",
                    TEXT.encode() + b"// comment",
                    with_field('"x": "\n"'),
                    with_field("'x': 1"),
                    with_field('"x": 01'),
                    TEXT[:-1].encode(),
                    b" ",
                )
            ),
            opens(b" \n" + TEXT.encode() + b"\t\r\n ", holds=lambda file: file.arch.num_layers == 2),
        ],
        expected="O Parse.json",
        raw=HEADER_HASH,
    ),
    Row(
        "B8",
        "a document that is no object",
        [raw_header(raw) for raw in (b"[]", b'"x"', b"null", b"42")],
        expected="O Parse.header_type",
        raw=HEADER_HASH,
    ),
    Row(
        "B9",
        "format, version and quant_type of another kind",
        [
            *(fields(format=value) for value in ("xyz", "CMF", 1, None)),
            *(fields(version=value) for value in (3, 1, "2", 2.0, True, None, ...)),
            fields(quant_type=7),
            Case(fields(format=...), expected="O ok"),
        ],
        expected="O Parse.header_field",
        raw=HEADER_HASH,
    ),
)
