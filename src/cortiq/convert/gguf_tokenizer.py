"""A Hugging Face ``tokenizer.json`` out of the tokenizer keys of a GGUF (SPEC 6; keys as the GGUF format names them).

Two models are rebuilt: ``gpt2``, byte-level BPE with the merges the file lists, and ``llama``, SentencePiece BPE whose
merges follow from the scores. The ids are those llama.cpp gives. What a GGUF does not say is not invented: a
normalizer the original may have had (NFC) is not in its keys.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from cortiq.convert.chat import TURN_ENDS
from cortiq.convert.gguf_pretokenizers import PreTokenizer, pre_tokenizer
from cortiq.errors import SourceError, UnsupportedArch

__all__ = ["TokenType", "gguf_tokenizer"]

PREFIX = "tokenizer.ggml."
SPACE = "▁"
MAX_TOKENS = 1 << 22


class TokenType(IntEnum):
    """``tokenizer.ggml.token_type``."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


SPECIAL = (TokenType.UNKNOWN, TokenType.CONTROL)


def gguf_tokenizer(metadata: Mapping[str, object]) -> tuple[bytes, dict[str, object]]:
    """(bytes of tokenizer.json, the header's ``tokenizer_config``) for the metadata of a GGUF.

    ``tokenizer_config`` has chat_template, eos_token_ids, bos_token_id, pad_token_id, those there are, and the texts
    bos_token and eos_token. Raises UnsupportedArch naming a tokenizer model or pre-tokenizer that is not known,
    SourceError for keys that are missing or contradict each other.
    """
    vocab = _Vocab.read(metadata)
    model = metadata.get(f"{PREFIX}model")
    if model == "gpt2":
        document = _byte_level(metadata, vocab)
    elif model == "llama":
        document = _sentence_piece(metadata, vocab)
    else:
        raise UnsupportedArch(f"the GGUF's tokenizer model {model!r} is not known", code="tokenizer", found=model)
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8"), _config(metadata, vocab)


@dataclass(frozen=True, slots=True)
class _Vocab:
    """``tokens`` and ``types`` by id; ``special`` holds ids by their role in the keys (bos, eos, unknown ...)."""

    tokens: list[str]
    types: list[int]
    special: Mapping[str, int]

    @classmethod
    def read(cls, metadata: Mapping[str, object]) -> _Vocab:
        tokens = [_text(token) or f"[EMPTY_{index}]" for index, token in enumerate(_array(metadata, "tokens"))]
        if not tokens or len(tokens) > MAX_TOKENS:
            raise _bad("tokens", "must have a sensible number of entries", len(tokens))
        if len(set(tokens)) != len(tokens):
            raise _bad("tokens", "names a token twice", Counter(tokens).most_common(1)[0][0])
        types = [TokenType.NORMAL.value] * len(tokens)
        if f"{PREFIX}token_type" in metadata:
            types = [_integer("token_type", t) for t in _array(metadata, "token_type", len(tokens))]
        special: dict[str, int] = {}
        for role in ("bos", "eos", "eot", "eom", "unknown", "padding"):
            value = metadata.get(f"{PREFIX}{role}_token_id")
            if value is not None:
                special[role] = _integer(f"{role}_token_id", value)
                if not 0 <= special[role] < len(tokens):
                    raise _bad(f"{role}_token_id", "is not in the vocabulary", value)
        return cls(tokens, types, special)

    def ids(self, *types: TokenType) -> list[int]:
        wanted = {t.value for t in types}
        return [index for index, kind in enumerate(self.types) if kind in wanted]


def _byte_level(metadata: Mapping[str, object], vocab: _Vocab) -> dict[str, object]:
    """GPT-2's scheme: cut with patterns, bytes to characters, merge as listed."""
    name = metadata.get(f"{PREFIX}pre", "default")
    if not isinstance(name, str):
        raise _bad("pre", "must be a string", name)
    pre = pre_tokenizer(name)
    merges = [_pair(_text(merge)) for merge in _array(metadata, "merges")]
    # Padding rows of the embedding have names in a GGUF, but no text and no way to be produced.
    produced = {left + right for left, right in merges}
    padding = {i for i in vocab.ids(TokenType.UNUSED) if vocab.tokens[i] not in produced and len(vocab.tokens[i]) > 1}
    ids = {token: index for index, token in enumerate(vocab.tokens) if index not in padding}
    _check_merges(merges, ids)
    rstrip = _strips_right(metadata)
    return {
        **_frame(_added(vocab, rstrip), _post_processor(metadata, vocab, pre.add_bos, byte_level=True)),
        "normalizer": None,
        "pre_tokenizer": _splits(pre),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": _bpe(ids, merges, unknown=None, byte_fallback=False, ignore_merges=pre.ignore_merges),
    }


def _sentence_piece(metadata: Mapping[str, object], vocab: _Vocab) -> dict[str, object]:
    """SentencePiece BPE: no cutting, spaces become U+2581, bytes for characters without a piece."""
    scores = [_number("scores", s) for s in _array(metadata, "scores", len(vocab.tokens))]
    prefix = _flag(metadata, "add_space_prefix", True)
    normalizers: list[dict[str, object]] = []
    if _flag(metadata, "remove_extra_whitespaces", False):
        normalizers.append({"type": "Strip", "strip_left": True, "strip_right": True})
        normalizers.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    if prefix:
        normalizers.append({"type": "Prepend", "prepend": SPACE})
    normalizers.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    decoders: list[dict[str, object]] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unknown = vocab.special.get("unknown")
    return {
        **_frame(
            _added(vocab, _strips_right(metadata)), _post_processor(metadata, vocab, add_bos=True, byte_level=False)
        ),
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _bpe(
            {token: index for index, token in enumerate(vocab.tokens)},
            merges_from_scores(vocab.tokens, scores, _mergeable(vocab)),
            unknown=None if unknown is None else vocab.tokens[unknown],
            byte_fallback=True,
            ignore_merges=False,
        ),
    }


def _mergeable(vocab: _Vocab) -> list[int]:
    """Ids that merging can produce. Control and user-defined tokens are found in the text before it is merged."""
    return vocab.ids(TokenType.NORMAL, TokenType.UNUSED, TokenType.UNDEFINED)


def merges_from_scores(
    tokens: Sequence[str], scores: Sequence[float], mergeable: Iterable[int]
) -> list[tuple[str, str]]:
    """SentencePiece merges whatever pair makes the piece with the highest score, so each way to cut a piece in two
    other pieces is a merge, ranked by the score of the whole; among the ways to make one piece, longest left first.
    """
    ordered = sorted(mergeable, key=lambda index: (-scores[index], index))
    pieces = {tokens[index] for index in ordered}
    return [
        (piece[:cut], piece[cut:])
        for piece in (tokens[index] for index in ordered)
        for cut in range(len(piece) - 1, 0, -1)
        if piece[:cut] in pieces and piece[cut:] in pieces
    ]


def _bpe(
    ids: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    *,
    unknown: str | None,
    byte_fallback: bool,
    ignore_merges: bool,
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
        "vocab": ids,
        "merges": merges,
    }


def _frame(added: list[dict[str, object]], post_processor: dict[str, object] | None) -> dict[str, object]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "post_processor": post_processor,
    }


def _added(vocab: _Vocab, rstrip: bool) -> list[dict[str, object]]:
    """Tokens that are found in the raw text before anything else."""
    kept_spaces = ("<unk>", "<s>", "<|endoftext|>")
    return [
        {
            "id": index,
            "content": vocab.tokens[index],
            "single_word": False,
            "lstrip": False,
            "rstrip": rstrip and vocab.tokens[index] not in kept_spaces,
            "normalized": False,
            "special": vocab.types[index] in SPECIAL,
        }
        for index in vocab.ids(*SPECIAL, TokenType.USER_DEFINED)
    ]


def _strips_right(metadata: Mapping[str, object]) -> bool:
    """Phi-3's special tokens swallow the spaces behind them; its GGUFs say so by their name only."""
    name = str(metadata.get("general.name", "")).lower()
    return "phi-3" in name or "phi3" in name


def _post_processor(
    metadata: Mapping[str, object], vocab: _Vocab, add_bos: bool, byte_level: bool
) -> dict[str, object] | None:
    """BOS in front and EOS behind, as the flags say."""
    before = ["bos"] if _flag(metadata, "add_bos_token", add_bos) else []
    after = ["eos"] if _flag(metadata, "add_eos_token", False) else []
    for role in [*before, *after]:
        if role not in vocab.special:
            raise _bad(f"add_{role}_token", f"is set, but {role}_token_id is missing", True)
    if not before and not after:
        trim = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
        return trim if byte_level else None

    def framed(sequence: str, type_id: int) -> list[dict[str, object]]:
        def token(role: str) -> dict[str, object]:
            return {"SpecialToken": {"id": vocab.tokens[vocab.special[role]], "type_id": type_id}}

        body: dict[str, object] = {"Sequence": {"id": sequence, "type_id": type_id}}
        return [*map(token, before), body, *map(token, after)]

    names = {role: vocab.tokens[vocab.special[role]] for role in [*before, *after]}
    return {
        "type": "TemplateProcessing",
        "single": framed("A", 0),
        "pair": [*framed("A", 0), *framed("B", 1)],
        "special_tokens": {
            name: {"id": name, "ids": [vocab.special[role]], "tokens": [name]} for role, name in names.items()
        },
    }


def _splits(pre: PreTokenizer) -> dict[str, object]:
    parts: list[dict[str, object]] = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in pre.patterns
    ]
    parts.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False})
    return {"type": "Sequence", "pretokenizers": parts}


def _config(metadata: Mapping[str, object], vocab: _Vocab) -> dict[str, object]:
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise _bad("chat_template", "must be a string", type(template).__name__)
    ends = {vocab.special[role] for role in ("eos", "eot", "eom") if role in vocab.special}
    ends |= {index for index in vocab.ids(TokenType.CONTROL) if vocab.tokens[index] in TURN_ENDS}
    bos, eos = vocab.special.get("bos"), vocab.special.get("eos")
    config: dict[str, object | None] = {
        "chat_template": template or None,
        "eos_token_ids": sorted(ends),
        "bos_token_id": bos,
        "pad_token_id": vocab.special.get("padding"),
        "bos_token": None if bos is None else vocab.tokens[bos],
        "eos_token": None if eos is None else vocab.tokens[eos],
    }
    return {key: value for key, value in config.items() if value is not None}


def _check_merges(merges: Sequence[tuple[str, str]], ids: Mapping[str, int]) -> None:
    for left, right in merges:
        if left not in ids or right not in ids or left + right not in ids:
            raise _bad("merges", "names a token that is not in the vocabulary", f"{left} {right}")


def _pair(merge: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ") if not merge.startswith(" ") else ("", "", "")
    if not space or not left or not right:
        raise _bad("merges", "has an entry that is not two tokens", merge)
    return left, right


def _array(metadata: Mapping[str, object], key: str, length: int | None = None) -> list[object]:
    value = metadata.get(f"{PREFIX}{key}")
    tolist = getattr(value, "tolist", None)
    entries = tolist() if callable(tolist) else value
    if not isinstance(entries, (list, tuple)):
        raise _bad(key, "is missing" if value is None else "must be a list", type(value).__name__)
    if length is not None and len(entries) != length:
        raise _bad(key, f"must have an entry for each of {length} tokens", len(entries))
    return list(entries)


def _text(value: object) -> str:
    if isinstance(value, (bytes, bytearray)):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError as error:
            raise _bad("tokens", "holds text that is not UTF-8", bytes(value)) from error
    if not isinstance(value, str):
        raise _bad("tokens", "must hold text", type(value).__name__)
    return value


def _integer(key: str, value: object) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _bad(key, "must be an integer", value)
    return int(value.__index__())


def _number(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        raise _bad(key, "must be numbers", value)
    return float(value)


def _flag(metadata: Mapping[str, object], key: str, default: bool) -> bool:
    value = metadata.get(f"{PREFIX}{key}", default)
    if not isinstance(value, bool) and value not in (0, 1):
        raise _bad(key, "must be true or false", value)
    return bool(value)


def _bad(key: str, what: str, found: object) -> SourceError:
    return SourceError(f"the GGUF's {PREFIX}{key} {what}", code="gguf_tokenizer", found=found)
