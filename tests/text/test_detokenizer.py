"""Streams of text equal the text of all ids, for every decoder language models use."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.gguf_vocab import byte_level_metadata, sentence_piece_metadata
from cortiq.convert.gguf_tokenizer import TokenType, gguf_tokenizer
from cortiq.errors import Tokenizer as TokenizerError
from cortiq.text.detokenizer import Detokenizer, byte_alphabet
from cortiq.text.tokenizer import Tokenizer

PIECES = {"▁": -1.0, "a": -2.0, "▁a": -3.0, "▁▁": -4.0, "é": -5.0, "▁日": -6.0, "b▁": -7.0, "▁a▁": -8.0}
ADDED = {"<x>": TokenType.CONTROL, "a b": TokenType.USER_DEFINED, "日 é": TokenType.USER_DEFINED}


def with_decoder(decoder: Any) -> Tokenizer:
    document = json.loads(gguf_tokenizer(sentence_piece_metadata(PIECES, ADDED))[0])
    return Tokenizer(json.dumps({**document, "decoder": decoder}).encode())


def metaspace(scheme: str) -> Tokenizer:
    return with_decoder({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True})


def strip(start: int, stop: int) -> dict[str, Any]:
    return {"type": "Strip", "content": " ", "start": start, "stop": stop}


REPLACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
TOKENIZERS = {
    "byte level": Tokenizer(gguf_tokenizer(byte_level_metadata(["Ġ a", "Ã ©", "a b"], ADDED))[0]),
    "sentence piece": Tokenizer(gguf_tokenizer(sentence_piece_metadata(PIECES, ADDED, add_space_prefix=False))[0]),
    "space prefix": Tokenizer(gguf_tokenizer(sentence_piece_metadata(PIECES, ADDED))[0]),
    "metaspace": metaspace("always"),
    "metaspace first": metaspace("first"),
    "metaspace never": metaspace("never"),
    "strip starts": with_decoder({"type": "Sequence", "decoders": [REPLACE, strip(2, 0)]}),
    "strip ends": with_decoder({"type": "Sequence", "decoders": [REPLACE, strip(0, 1)]}),
    "strip more": with_decoder(
        {
            "type": "Sequence",
            "decoders": [
                REPLACE, {"type": "ByteFallback"}, {"type": "Fuse"},
                strip(3, 0),
            ],
        }
    ),
    "replace after bytes": with_decoder({"type": "Sequence", "decoders": [{"type": "ByteFallback"}, REPLACE]}),
    "none": with_decoder(None),
}  # fmt: skip


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_stream_equals_decode(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(st.integers(0, tokenizer.max_id + 2), max_size=40))
    skip_special = data.draw(st.booleans())
    stream = Detokenizer(tokenizer, skip_special)
    pieces = [stream.push(i) for i in ids]
    assert "".join(pieces) + stream.flush() == tokenizer.decode(ids, skip_special)
    assert all("�" not in piece or "�" in tokenizer.decode(ids, skip_special) for piece in pieces)


@pytest.mark.parametrize("name", ["byte level", "sentence piece", "space prefix"])
@settings(max_examples=100, deadline=None)
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="▁"), max_size=30))
def test_text_survives_the_round_trip(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    stream = Detokenizer(tokenizer)
    shown = [stream.push(i) for i in tokenizer.encode(text, parse_special=False)]
    assert all("�" not in piece for piece in shown) or "�" in text
    assert "".join(shown) + stream.flush() == text


def test_half_a_character_waits() -> None:
    tokenizer = TOKENIZERS["byte level"]
    stream = Detokenizer(tokenizer)
    ids = tokenizer.encode("👍")
    assert [stream.push(i) for i in ids] == ["", "", "", "👍"]
    stream.push(ids[0])
    assert stream.flush() == "�"


def test_special_tokens_and_padding_have_no_text() -> None:
    tokenizer = TOKENIZERS["byte level"]
    special = tokenizer.token_to_id("<x>")
    assert special is not None
    assert Detokenizer(tokenizer).push(special) == ""
    assert Detokenizer(tokenizer, skip_special=False).push(special) == "<x>"
    assert Detokenizer(tokenizer).push(999_999) == ""


def test_decoders_without_an_incremental_form_are_refused() -> None:
    for decoder in [
        {"type": "CTC", "pad_token": "a", "word_delimiter_token": "|", "cleanup": True},
        {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"},
        {"type": "Sequence", "decoders": [{"type": "Fuse"}, REPLACE]},
        {"type": "Sequence", "decoders": [{"type": "Fuse"}, strip(0, 1)]},
        strip(1, 1),
    ]:
        with pytest.raises(TokenizerError) as refused:
            Detokenizer(with_decoder(decoder))
        assert refused.value.code == "decoder"


@pytest.mark.parametrize("name", ["byte level", "space prefix"])
def test_constant_work_per_token(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode("a é日 " * 5000, add_special_tokens=False)

    def seconds(count: int) -> float:
        stream, begun = Detokenizer(tokenizer), time.perf_counter()
        for token in ids[:count]:
            stream.push(token)
        return time.perf_counter() - begun

    best = min(seconds(20_000) for _ in range(3)) / 20_000
    assert best < 60e-6
    assert best < 4 * min(seconds(2_000) for _ in range(3)) / 2_000


def test_byte_alphabet_is_the_library_s() -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    assert sorted(byte_alphabet()) == sorted(ByteLevel.alphabet())
    assert sorted(byte_alphabet().values()) == list(range(256))
