"""Tokenizers rebuilt from GGUF keys: ids as llama.cpp gives them on real vocabularies, and every key on small ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.gguf_vocab import byte_level_metadata, sentence_piece_metadata
from builders.real_models import real_gguf_file
from cortiq.convert.gguf_pretokenizers import pre_tokenizer, pre_tokenizer_names
from cortiq.convert.gguf_tokenizer import TokenType, gguf_tokenizer
from cortiq.errors import SourceError, UnsupportedArch
from cortiq.text.tokenizer import Tokenizer

ORACLE = json.loads((Path(__file__).parents[1] / "data" / "text" / "llama_cpp_ids.json").read_text())


def rebuilt(metadata: Mapping[str, object]) -> Tokenizer:
    return Tokenizer(gguf_tokenizer(metadata)[0])


def tokens(tokenizer: Tokenizer, text: str) -> list[str | None]:
    return [tokenizer.id_to_token(i) for i in tokenizer.encode(text, add_special_tokens=False)]


@pytest.mark.parametrize("file_name", ORACLE["ids"])
def test_ids_equal_llama_cpp(file_name: str, request: pytest.FixtureRequest) -> None:
    from cortiq.convert.sources.gguf_file import GgufFile

    file = GgufFile(real_gguf_file(request.config, file_name))
    metadata = dict(file.metadata)
    file.close()
    tokenizer = rebuilt(metadata)
    for text, ids in zip(ORACLE["strings"], ORACLE["ids"][file_name], strict=True):
        assert tokenizer.encode(text, add_special_tokens=False) == ids, text
        assert tokenizer.encode(text) == [*tokenizer.prefix_ids, *ids]
        assert tokenizer.decode(ids, skip_special=False) == text


def test_byte_level_merges_in_the_listed_order() -> None:
    tokenizer = rebuilt(byte_level_metadata(["a b", "b c", "ab c", "Ġ a", "Ġa b"]))
    assert tokens(tokenizer, "abc") == ["abc"]
    assert tokens(tokenizer, "bc ab") == ["bc", "Ġ", "ab"]
    assert tokens(tokenizer, "é\n") == ["Ã", "©", "Ċ"]
    assert tokenizer.decode(tokenizer.encode("naïve 👍\t")) == "naïve 👍\t"


def test_a_whole_word_that_is_a_token_is_taken_where_merges_are_ignored() -> None:
    keys = byte_level_metadata(["a b", "c d"], {"abcd": TokenType.NORMAL}, add_bos_token=False)
    assert tokens(rebuilt(keys), "abcd") == ["ab", "cd"]
    assert tokens(rebuilt({**keys, "tokenizer.ggml.pre": "llama-bpe"}), "abcd") == ["abcd"]


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["It", "'s", "ĠIT", "'", "S", "Ġ", "Ġ1234", "Ċ", "ĉ", "x", "!?"]),
        ("smollm", ["It", "'s", "ĠIT", "'", "S", "ĠĠ", "1", "2", "3", "4", "Ċ", "ĉ", "x", "!?"]),
        ("qwen2", ["It", "'s", "ĠIT", "'S", "Ġ", "Ġ", "1", "2", "3", "4", "Ċ", "ĉx", "!?"]),
        ("llama-bpe", ["It", "'s", "ĠIT", "'S", "Ġ", "Ġ", "123", "4", "Ċ", "ĉx", "!?"]),
        ("gpt-4o", ["It's", "ĠIT'S", "Ġ", "Ġ", "123", "4", "Ċ", "ĉx", "!?"]),
        ("deepseek-v3", ["It", "'s", "ĠIT", "'S", "ĠĠ", "123", "4", "Ċ", "ĉx", "!?"]),
        ("falcon", ["It", "'", "s", "ĠIT", "'", "S", "Ġ", "Ġ", "123", "4", "Ċ", "ĉ", "x", "!?"]),
        ("default", ["It", "'", "s", "ĠIT", "'", "S", "Ġ", "Ġ", "123", "4", "Ċ", "ĉ", "x", "!?"]),
    ],
)
def test_cuts(pre: str, pieces: list[str]) -> None:
    from tokenizers import Tokenizer as Library

    data, _ = gguf_tokenizer(byte_level_metadata(pre=pre, add_bos_token=False))
    cutter: Any = Library.from_str(data.decode()).pre_tokenizer
    assert [piece for piece, _ in cutter.pre_tokenize_str("It's IT'S  1234\n\tx!?")] == pieces


@pytest.mark.parametrize("pre", list(pre_tokenizer_names()))
def test_every_pre_tokenizer_loads_and_loses_nothing(pre: str) -> None:
    tokenizer = rebuilt(byte_level_metadata(pre=pre, add_bos_token=False))
    text = "I'll pay $1,234,567.89 — ça va?\r\n\n\t日本語 Ελλ 👩‍👧 x_y(z)   end "
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_pre_tokenizer_names_are_unique() -> None:
    names = list(pre_tokenizer_names())
    assert len(names) == len(set(names))


def test_unknown_pre_tokenizer_is_named() -> None:
    with pytest.raises(UnsupportedArch, match="'kimi-k2'"):
        pre_tokenizer("kimi-k2")
    with pytest.raises(UnsupportedArch, match="'brand-new'"):
        gguf_tokenizer(byte_level_metadata(pre="brand-new"))


@pytest.mark.parametrize("model", ["t5", "bert", None])
def test_unknown_model_is_named(model: str | None) -> None:
    with pytest.raises(UnsupportedArch, match=repr(model)):
        gguf_tokenizer({**byte_level_metadata(), "tokenizer.ggml.model": model})


def test_token_types() -> None:
    added = {
        "<|end|>": TokenType.CONTROL,
        "<think>": TokenType.USER_DEFINED,
        "[PAD0]": TokenType.UNUSED,
        "[PAD1]": TokenType.UNUSED,
    }
    tokenizer = rebuilt(byte_level_metadata(["a b"], added))
    assert tokenizer.encode("ab<|end|><think>[PAD0]")[:3] == [256, 257, 258]
    assert tokenizer.special_ids == {257}
    assert tokenizer.added_ids == {257, 258}
    assert tokenizer.decode([256, 257, 258]) == "ab<think>"
    assert tokenizer.id_to_token(259) is None
    assert tokenizer.decode([256, 260]) == "ab"
    assert len(tokenizer.encode("<|end|>", parse_special=False)) == 7


def test_bos_and_eos_flags() -> None:
    added = {"<s>": TokenType.CONTROL, "</s>": TokenType.CONTROL}
    ids = {"bos_token_id": 256, "eos_token_id": 257}

    def frame(**keys: object) -> tuple[tuple[int, ...], tuple[int, ...]]:
        tokenizer = rebuilt(byte_level_metadata(added=added, **ids, **keys))
        return tokenizer.prefix_ids, tokenizer.suffix_ids

    assert frame() == ((), ())
    assert frame(add_bos_token=True) == ((256,), ())
    assert frame(add_bos_token=True, add_eos_token=True) == ((256,), (257,))
    assert frame(add_eos_token=1) == ((), (257,))
    assert frame(pre="llama-bpe") == ((256,), ())
    assert frame(pre="llama-bpe", add_bos_token=False) == ((), ())


def test_tokenizer_config() -> None:
    added = {"<s>": TokenType.CONTROL, "</s>": TokenType.CONTROL, "<|im_end|>": TokenType.CONTROL}
    metadata = byte_level_metadata(added=added, bos_token_id=256, eos_token_id=257, padding_token_id=0)
    assert gguf_tokenizer(metadata)[1] == {
        "eos_token_ids": [257, 258],
        "bos_token_id": 256,
        "pad_token_id": 0,
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
    with_template = gguf_tokenizer({**metadata, "tokenizer.chat_template": "{{ x }}"})[1]
    assert with_template["chat_template"] == "{{ x }}"
    assert gguf_tokenizer(byte_level_metadata())[1] == {"eos_token_ids": []}


PIECES = {
    "▁": -1.0, "a": -2.0, "b": -3.0, "c": -4.0, "=": -5.0, "ab": -6.0, "▁a": -7.0, "==": -8.0, "abc": -9.0,
    "bc": -10.0, "▁ab": -11.0, "===": -12.0, "====": -13.0, "aa": -14.0, "aba": -15.0, "▁▁": -16.0,
}  # fmt: skip


def reference_pieces(text: str, scores: Mapping[str, float]) -> list[str]:
    """SentencePiece's rule: join the neighbours whose joint piece scores highest, leftmost first."""
    symbols = list(text)
    while True:
        pairs = [(scores[a + b], -i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in scores]
        if not pairs:
            break
        at = -max(pairs)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return [s if s in scores else t for s in symbols for t in ([s] if s in scores else byte_tokens(s))]


def byte_tokens(symbol: str) -> list[str]:
    return [f"<0x{byte:02X}>" for byte in symbol.encode()]


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="abc= é👍", max_size=24))
def test_sentence_piece_follows_the_scores(text: str) -> None:
    tokenizer = SENTENCE_PIECE
    assert tokens(tokenizer, text) == reference_pieces(text.replace(" ", "▁"), PIECES)
    assert tokenizer.decode(tokenizer.encode(text)) == text


SENTENCE_PIECE = rebuilt(sentence_piece_metadata(PIECES, add_space_prefix=False))


def test_space_prefix() -> None:
    tokenizer = rebuilt(sentence_piece_metadata(PIECES, {"<x>": TokenType.CONTROL}))
    assert tokens(tokenizer, "ab") == ["▁ab"]
    assert tokens(tokenizer, " ab") == ["▁", "▁ab"]
    assert tokens(tokenizer, "a<x>ab") == ["▁a", "<x>", "▁ab"]
    assert tokenizer.encode("") == [1]
    for text in ("ab", " ab", "  c", "a b"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_extra_whitespace_is_removed_where_the_file_says_so() -> None:
    tokenizer = rebuilt(sentence_piece_metadata(PIECES, remove_extra_whitespaces=True))
    assert tokens(tokenizer, "  a   b ") == ["▁a", "▁", "b"]


def test_sentence_piece_special_tokens() -> None:
    added = {"<turn>": TokenType.CONTROL, "  ": TokenType.USER_DEFINED, "\n\n": TokenType.USER_DEFINED}
    tokenizer = rebuilt(sentence_piece_metadata(PIECES, added, add_space_prefix=False))
    assert tokens(tokenizer, "a<turn>   b\n\n\n") == ["a", "<turn>", "  ", "▁", "b", "\n\n", "<0x0A>"]
    assert tokenizer.encode("a")[0] == 1
    assert "<turn>" not in tokens_plain(tokenizer, "<turn>")


def tokens_plain(tokenizer: Tokenizer, text: str) -> list[str | None]:
    return [tokenizer.id_to_token(i) for i in tokenizer.encode(text, add_special_tokens=False, parse_special=False)]


def test_phi_3_special_tokens_swallow_spaces() -> None:
    keys = sentence_piece_metadata(PIECES, {"<|user|>": TokenType.CONTROL}, add_space_prefix=False)
    assert tokens(rebuilt(keys), "<|user|> a") == ["<|user|>", "▁a"]
    assert tokens(rebuilt({**keys, "general.name": "Phi 3 Phi3 mini"}), "<|user|> a") == ["<|user|>", "a"]


def test_arrays_and_bytes_are_accepted() -> None:
    metadata = sentence_piece_metadata(PIECES)
    as_arrays = dict(metadata)
    as_arrays["tokenizer.ggml.scores"] = np.array(metadata["tokenizer.ggml.scores"], np.float32)
    as_arrays["tokenizer.ggml.token_type"] = np.array(metadata["tokenizer.ggml.token_type"], np.int32)
    listed: Any = metadata["tokenizer.ggml.tokens"]
    as_arrays["tokenizer.ggml.tokens"] = [token.encode() for token in listed]
    assert gguf_tokenizer(as_arrays) == gguf_tokenizer(metadata)


def test_same_input_same_bytes() -> None:
    assert gguf_tokenizer(sentence_piece_metadata(PIECES))[0] == gguf_tokenizer(sentence_piece_metadata(PIECES))[0]


@pytest.mark.parametrize(
    "broken",
    [
        {"tokens": None},
        {"tokens": []},
        {"tokens": [1, 2]},
        {"tokens": ["a", "a"]},
        {"tokens": [b"\xff", b"a"]},
        {"token_type": [1]},
        {"token_type": ["x"] * 257},
        {"merges": None},
        {"merges": ["a"]},
        {"merges": ["a zz"]},
        {"bos_token_id": 257},
        {"bos_token_id": -1},
        {"eos_token_id": "2"},
        {"add_bos_token": True},
        {"add_bos_token": "yes"},
        {"pre": 3},
    ],
    ids=str,
)
def test_broken_keys(broken: dict[str, object]) -> None:
    metadata = byte_level_metadata(["a b"])
    for key, value in broken.items():
        metadata[f"tokenizer.ggml.{key}"] = value
    with pytest.raises(SourceError, match=next(iter(broken))):
        gguf_tokenizer(metadata)


@pytest.mark.parametrize("broken", [{"scores": None}, {"scores": [0.0]}, {"scores": [float("nan")] * 275}], ids=str)
def test_broken_scores(broken: dict[str, object]) -> None:
    metadata = sentence_piece_metadata(PIECES)
    metadata["tokenizer.ggml.scores"] = broken["scores"]
    with pytest.raises(SourceError, match="scores"):
        gguf_tokenizer(metadata)
