"""Tokenizer sections: good ones behave like the library, hostile ones are errors (never a panic or a hang)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from zlib import crc32

import pytest

from builders.gguf_vocab import byte_level_metadata
from cortiq.convert.gguf_tokenizer import TokenType, gguf_tokenizer
from cortiq.errors import Tokenizer as TokenizerError
from cortiq.errors import UsageError
from cortiq.text.tokenizer import Tokenizer

ADDED = {"<s>": TokenType.CONTROL, "</s>": TokenType.CONTROL, "<|im_end|>": TokenType.CONTROL}
GOOD, _ = gguf_tokenizer(
    byte_level_metadata(["a b", "ab c"], ADDED, bos_token_id=258, eos_token_id=259, add_bos_token=True)
)


def changed(**parts: Any) -> bytes:
    return json.dumps({**json.loads(GOOD), **parts}).encode()


def with_model(**parts: Any) -> bytes:
    document = json.loads(GOOD)
    document["model"].update(parts)
    return json.dumps(document).encode()


def with_pattern(regex: str) -> bytes:
    document = json.loads(GOOD)
    document["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = regex
    return json.dumps(document).encode()


def test_questions_about_the_vocabulary() -> None:
    tokenizer = Tokenizer(GOOD)
    assert tokenizer.json_bytes == GOOD
    assert (tokenizer.vocab_size, tokenizer.max_id) == (261, 260)
    assert tokenizer.special_ids == tokenizer.added_ids == {258, 259, 260}
    assert (tokenizer.prefix_ids, tokenizer.suffix_ids) == ((258,), ())
    assert tokenizer.encode("abc") == [258, 257]
    assert tokenizer.encode("abc", add_special_tokens=False) == [257]
    assert tokenizer.decode([258, 257, 260]) == "abc"
    assert tokenizer.decode([258, 257], skip_special=False) == "<s>abc"
    assert tokenizer.id_to_token(257) == "abc"
    assert tokenizer.id_to_token(261) is None
    assert tokenizer.token_to_id("</s>") == 259


def test_untrusted_text_has_no_special_tokens() -> None:
    tokenizer = Tokenizer(GOOD)
    assert tokenizer.encode("<|im_end|>", add_special_tokens=False) == [260]
    plain = tokenizer.encode("<|im_end|>", add_special_tokens=False, parse_special=False)
    assert 260 not in plain
    assert tokenizer.decode(plain) == "<|im_end|>"
    assert tokenizer.encode("<|im_end|>", add_special_tokens=False) == [260]


def test_threads_do_not_disturb_each_other() -> None:
    tokenizer = Tokenizer(GOOD)

    def count(parse: bool) -> int:
        return sum(260 in tokenizer.encode("x<|im_end|>", parse_special=parse) for _ in range(300))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(count, [True, False, True, False])) == [300, 0, 300, 0]


def test_ids_beyond_the_embedding() -> None:
    tokenizer = Tokenizer(GOOD)
    tokenizer.check_ids(261)
    with pytest.raises(TokenizerError) as refused:
        tokenizer.check_ids(260)
    assert refused.value.code == "ids"
    tokenizer.check_special([("bos_token_id", 258), ("pad_token_id", None)])
    with pytest.raises(TokenizerError, match="eos_token_ids"):
        tokenizer.check_special([("eos_token_ids", 261)])


def test_padding_and_truncation_of_the_file_are_ignored() -> None:
    tokenizer = Tokenizer(
        changed(
            padding={"strategy": {"Fixed": 10**10}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                     "pad_type_id": 0, "pad_token": "!"},
            truncation={"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        )
    )  # fmt: skip
    assert tokenizer.encode("abcabcabc", add_special_tokens=False) == [257] * 3


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{}", b"null", b"[]", b"\x89PNG\r\n\x1a\n\0\0", b"\xff\xfe{", b"version https://git-lfs.github.com/spec/v1",
        b"[" * 2000 + b"]" * 2000, GOOD[:-20],
        with_model(vocab={}, merges=[]),
        with_model(vocab={"a": -1}),
        with_model(vocab={"a": 1 << 40}),
        with_model(vocab={"a": 0, "b": 4294967295}, merges=[]),
        with_model(vocab={"a": 0, "b": 0}, merges=[]),
        with_model(merges=[["a", "zz"]]),
        with_model(merges=["a b c"]),
        with_model(type="Nothing"),
        with_pattern("(unbalanced"),
        with_pattern("a" * 40_000),
        changed(added_tokens=[{**json.loads(GOOD)["added_tokens"][0], "content": ""}]),
        changed(normalizer={"type": "Sequence", "normalizers": [
            {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 24}),
        changed(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        changed(added_tokens=[{**json.loads(GOOD)["added_tokens"][0], "content": "new", "id": 7}]),
    ],
    ids=lambda data: data[:24].decode("latin-1") + f"...{len(data)}" if len(data) < 100 else f"{crc32(data):08x}",
)  # fmt: skip
def test_hostile_sections_are_errors(data: bytes) -> None:
    with pytest.raises(TokenizerError):
        Tokenizer(data)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*c"])
def test_patterns_that_backtrack_end_in_time(pattern: str) -> None:
    tokenizer = Tokenizer(with_pattern(pattern))
    try:
        tokenizer.encode("a" * 40 + "c")
    except TokenizerError as error:
        assert error.code == "encode"  # noqa: PT017 - either outcome is right, a hang is not
    assert tokenizer.encode("b", add_special_tokens=False) == tokenizer.encode("b", add_special_tokens=False)


def test_a_post_processor_that_names_no_token_is_an_error() -> None:
    document = json.loads(GOOD)
    document["post_processor"]["special_tokens"] = {}
    with pytest.raises(TokenizerError):
        Tokenizer(json.dumps(document).encode()).encode("a")


def test_what_is_not_text_or_an_id() -> None:
    tokenizer = Tokenizer(GOOD)
    with pytest.raises(UsageError):
        tokenizer.encode(b"bytes")  # type: ignore[arg-type]
    with pytest.raises(TokenizerError, match="surrogate"):
        tokenizer.encode("a\ud800")
    with pytest.raises(UsageError):
        tokenizer.decode([-1])
    with pytest.raises(UsageError):
        tokenizer.id_to_token(1 << 32)
