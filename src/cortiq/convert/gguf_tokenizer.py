"""The tokenizer of a GGUF as a ``tokenizer.json``: the same ids as llama.cpp gives (SPEC 6).

A GGUF holds tokens, their types, and merges (byte-level BPE) or scores (SentencePiece-style BPE). How text is split
before merging is only named; the patterns behind the names are the table here. Nothing is normalized: llama.cpp does
not do it either.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from cortiq.convert.chat import stop_ids
from cortiq.errors import SourceError, UnsupportedArch

_PREFIX = "tokenizer.ggml."
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6
_SPACE = "\u2581"

_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_MODERN = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class _Split:
    """Patterns of a ``pre`` name, applied one after the other; whole words may be tokens without merges."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


_GPT2 = _Split((_WORDS,))
_DIGITS = _Split((r"\p{N}", _WORDS))
_LLAMA3 = _Split((_MODERN % "{1,3}",), ignore_merges=True, add_bos=True)
_QWEN2 = _Split((_MODERN % "",))
_DEFAULT = _Split((r"[\p{P}\$\+<=>\^~\|]+", _WORDS, r"\p{N}+", r"[0-9][0-9][0-9]"))
SPLITS: Mapping[str, _Split] = MappingProxyType(
    {
        "default": _DEFAULT,
        "gpt-2": _GPT2,
        "smollm": _DIGITS,
        "starcoder": _DIGITS,
        "refact": _DIGITS,
        "command-r": _DIGITS,
        "codeshell": _DIGITS,
        "llama-bpe": _LLAMA3,
        "llama3": _LLAMA3,
        "llama-v3": _LLAMA3,
        "qwen2": _QWEN2,
        "deepseek-r1-qwen": _QWEN2,
    }
)


def gguf_tokenizer(metadata: Mapping[str, object]) -> tuple[bytes | None, dict[str, object]]:
    """``tokenizer.json`` and the header's ``tokenizer_config``; no tokenizer when the GGUF says it has none.

    Raises UnsupportedArch (``tokenizer``, ``pre_tokenizer``) naming a kind that is not known, SourceError.tokenizer
    for tables that contradict each other.
    """
    kind = metadata.get(f"{_PREFIX}model")
    if kind in (None, "none", "no_vocab"):
        return None, {}
    vocabulary = _Vocabulary(metadata)
    if kind == "gpt2":
        parts = _byte_level(vocabulary, metadata)
    elif kind == "llama":
        parts = _sentencepiece(vocabulary, metadata)
    else:
        raise UnsupportedArch(
            "this kind of tokenizer cannot be rebuilt", code="tokenizer", expected="gpt2, llama", found=kind
        )
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": vocabulary.added_tokens(),
        **parts,
    }
    data = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    return data, _chat(vocabulary, metadata)


class _Vocabulary:
    """Tokens, types and the ids with a role."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self.tokens: list[str] = _list(metadata, "tokens", str)
        types = metadata.get(f"{_PREFIX}token_type")
        self.types: list[int] = [_NORMAL] * len(self.tokens) if types is None else _list(metadata, "token_type", int)
        if len(self.types) != len(self.tokens):
            raise SourceError("tokens and their types differ in number", code="tokenizer")
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        if len(self.ids) != len(self.tokens):
            raise SourceError("a token occurs twice", code="tokenizer")
        self.bos = self._role(metadata, "bos")
        self.eos = self._role(metadata, "eos")
        self.unknown = self._role(metadata, "unknown")
        self.pad = self._role(metadata, "padding")
        self.turn_ends = [i for i in (self._role(metadata, "eot"), self._role(metadata, "eom")) if i is not None]

    def _role(self, metadata: Mapping[str, object], name: str) -> int | None:
        found = metadata.get(f"{_PREFIX}{name}_token_id")
        if found is None:
            return None
        if not isinstance(found, int) or not 0 <= found < len(self.tokens):
            raise SourceError(f"the id of the {name} token is outside the vocabulary", code="tokenizer", found=found)
        return found

    def added_tokens(self) -> list[dict[str, object]]:
        """Tokens that are found in the text before it is split: control tokens and those users defined."""
        return [
            {
                "id": i,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": kind != _USER_DEFINED,
            }
            for i, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True))
            if kind in (_CONTROL, _USER_DEFINED, _UNKNOWN) and token
        ]

    def text(self, token: int | None) -> str | None:
        return None if token is None else self.tokens[token]


def _byte_level(vocabulary: _Vocabulary, metadata: Mapping[str, object]) -> dict[str, object]:
    name = metadata.get(f"{_PREFIX}pre", "default")
    split = SPLITS.get(str(name))
    if split is None:
        raise UnsupportedArch(
            "this way of splitting text is not known", code="pre_tokenizer", expected=", ".join(SPLITS), found=name
        )
    merges = []
    for merge in _list(metadata, "merges", str):
        left, space, right = merge.partition(" ")
        if not space or left + right not in vocabulary.ids:
            raise SourceError("a merge makes no token", code="tokenizer", found=merge)
        merges.append([left, right])
    steps: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in split.patterns
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, level]},
        "post_processor": _frame(vocabulary, metadata, add_bos=split.add_bos),
        "decoder": level,
        "model": _bpe(vocabulary.ids, merges, ignore_merges=split.ignore_merges),
    }


def _sentencepiece(vocabulary: _Vocabulary, metadata: Mapping[str, object]) -> dict[str, object]:
    scores: list[float] = _list(metadata, "scores", float)
    if len(scores) != len(vocabulary.tokens):
        raise SourceError("tokens and their scores differ in number", code="tokenizer")
    prefixed = metadata.get(f"{_PREFIX}add_space_prefix", True) is not False
    to_marks: dict[str, Any] = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    normalizers = [{"type": "Prepend", "prepend": _SPACE}, to_marks] if prefixed else [to_marks]
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefixed:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "post_processor": _frame(vocabulary, metadata, add_bos=True),
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _bpe(
            vocabulary.ids,
            merges_of_scores(vocabulary.ids, vocabulary.types, scores),
            unknown=vocabulary.text(vocabulary.unknown),
            byte_fallback=_BYTE in vocabulary.types,
        ),
    }


def merges_of_scores(ids: Mapping[str, int], types: Sequence[int], scores: Sequence[float]) -> list[list[str]]:
    """Every way to join two tokens to a third, the best score first.

    SentencePiece joins the neighbours whose union has the best score. Ways to make the same token come in the order of
    the ids of their parts.
    """
    ranked = sorted((-scores[i], i, token) for token, i in ids.items() if types[i] == _NORMAL and len(token) > 1)
    merges: list[list[str]] = []
    for _, _, token in ranked:
        ways = []
        for at in range(1, len(token)):
            left = ids.get(token[:at])
            if left is not None:
                right = ids.get(token[at:])
                if right is not None:
                    ways.append((left, right, at))
        merges += [[token[:at], token[at:]] for _, _, at in sorted(ways)]
    return merges


def _bpe(
    vocab: Mapping[str, int],
    merges: list[list[str]],
    *,
    unknown: str | None = None,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> dict[str, object]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": byte_fallback,
        "byte_fallback": byte_fallback,
        "ignore_merges": ignore_merges,
        "vocab": dict(vocab),
        "merges": merges,
    }


def _frame(vocabulary: _Vocabulary, metadata: Mapping[str, object], *, add_bos: bool) -> dict[str, object] | None:
    """The post-processor that puts BOS in front and EOS behind, where the file wants them."""
    wants_bos = metadata.get(f"{_PREFIX}add_bos_token", add_bos) is True
    wants_eos = metadata.get(f"{_PREFIX}add_eos_token", False) is True
    first = vocabulary.bos if wants_bos else None
    last = vocabulary.eos if wants_eos else None
    if first is None and last is None:
        return None
    before = [] if first is None else [_special(vocabulary, first)]
    after = [] if last is None else [_special(vocabulary, last)]
    texts = {vocabulary.tokens[token]: token for token in (first, last) if token is not None}
    return {
        "type": "TemplateProcessing",
        "single": [*before, {"Sequence": {"id": "A", "type_id": 0}}, *after],
        "pair": [
            *before,
            {"Sequence": {"id": "A", "type_id": 0}},
            *after,
            {"Sequence": {"id": "B", "type_id": 1}},
            *after,
        ],
        "special_tokens": {text: {"id": text, "ids": [token], "tokens": [text]} for text, token in texts.items()},
    }


def _special(vocabulary: _Vocabulary, token: int) -> dict[str, object]:
    return {"SpecialToken": {"id": vocabulary.tokens[token], "type_id": 0}}


def _chat(vocabulary: _Vocabulary, metadata: Mapping[str, object]) -> dict[str, object]:
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise SourceError("the chat template is not text", code="chat_template")
    eos = vocabulary.text(vocabulary.eos)
    chat = {
        "chat_template": template,
        "eos_token_ids": stop_ids(vocabulary.turn_ends, eos, template, vocabulary.ids),
        "bos_token_id": vocabulary.bos,
        "pad_token_id": vocabulary.pad,
        "bos_token": vocabulary.text(vocabulary.bos),
        "eos_token": eos,
    }
    return {key: value for key, value in chat.items() if value is not None}


def _list(metadata: Mapping[str, object], name: str, kind: type) -> list[Any]:
    found = metadata.get(f"{_PREFIX}{name}")
    if not isinstance(found, list) or not all(isinstance(item, kind) for item in found):
        raise SourceError(f"the table {_PREFIX}{name} is missing or not of {kind.__name__}", code="tokenizer")
    return found
