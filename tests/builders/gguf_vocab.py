"""Tokenizer keys of small GGUF files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cortiq.convert.gguf_tokenizer import TokenType
from cortiq.text.detokenizer import byte_alphabet

__all__ = ["byte_level_metadata", "sentence_piece_metadata"]

BYTES = list(byte_alphabet())


def byte_level_metadata(
    merges: Sequence[str] = (), added: Mapping[str, TokenType] | None = None, **keys: Any
) -> dict[str, object]:
    """A ``gpt2`` vocabulary: 256 bytes, then what the merges make, then ``added``; ``keys`` without their prefix."""
    tokens = [*BYTES, *(merge.replace(" ", "") for merge in merges), *(added or {})]
    types = [TokenType.NORMAL] * (256 + len(merges)) + list((added or {}).values())
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [int(t) for t in types],
        "tokenizer.ggml.merges": list(merges),
        **{f"tokenizer.ggml.{key}": value for key, value in keys.items()},
    }


def sentence_piece_metadata(
    pieces: Mapping[str, float], added: Mapping[str, TokenType] | None = None, **keys: Any
) -> dict[str, object]:
    """A ``llama`` vocabulary: <unk>, <s>, </s>, 256 bytes, the scored ``pieces``, then ``added``."""
    head = {"<unk>": TokenType.UNKNOWN, "<s>": TokenType.CONTROL, "</s>": TokenType.CONTROL}
    tokens = [*head, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, *(added or {})]
    types = [*head.values(), *[TokenType.BYTE] * 256, *[TokenType.NORMAL] * len(pieces), *(added or {}).values()]
    scores = [0.0] * 259 + list(pieces.values()) + [-1000.0] * len(added or {})
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [int(t) for t in types],
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **{f"tokenizer.ggml.{key}": value for key, value in keys.items()},
    }
