"""What a ``tokenizer.json`` may not do to the process that reads it: the limits the library itself does not have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cortiq.errors import Tokenizer as TokenizerError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_TOKENIZER_BYTES = 256 << 20
MAX_TOKEN_ID = (1 << 24) - 1
MAX_ADDED_TOKENS = 100_000
MAX_EXPANSION = 64.0
MAX_PATTERN = 1 << 15


def check_components(normalizer: Mapping[str, Any] | None, pre_tokenizer: Mapping[str, Any] | None) -> None:
    """Refuse normalizers that multiply a text without bound, and patterns of absurd length.

    A pattern that backtracks without end needs no check: the library gives up and reports it.
    Raises errors.Tokenizer with code ``expand`` or ``regex``.
    """
    growth = 1.0
    for part in [*_parts(normalizer, "normalizers"), *_parts(pre_tokenizer, "pretokenizers")]:
        pattern = part.get("pattern")
        regex = pattern.get("Regex") if isinstance(pattern, Mapping) else None
        if isinstance(regex, str) and len(regex) > MAX_PATTERN:
            raise TokenizerError("a split pattern is too long", code="regex", expected=MAX_PATTERN, found=len(regex))
        if part.get("type") == "Replace":
            growth *= _replacement_growth(part)
        if growth > MAX_EXPANSION:
            raise TokenizerError("the normalizer can make a text many times longer", code="expand", found=growth)


def check_added(text: str, tokenizer: Tokenizer) -> None:
    """Added tokens must have text, the ids ``text`` (the JSON) gives them, and be of a number that can be searched for.

    The library drops an empty one and numbers others anew without a word. Raises errors.Tokenizer.
    """
    declared = _declared(text)
    if len(declared) > MAX_ADDED_TOKENS:
        raise TokenizerError("too many added tokens", code="limit", expected=MAX_ADDED_TOKENS, found=len(declared))
    for token in declared:
        content, wanted = token.get("content"), token.get("id")
        if not isinstance(content, str) or not content:
            raise TokenizerError("an added token is empty", code="parse")
        if tokenizer.token_to_id(content) != wanted:
            found = tokenizer.token_to_id(content)
            raise TokenizerError(
                f"the added token {content!r} has another id", code="ids", expected=wanted, found=found
            )


def _declared(text: str) -> list[dict[str, Any]]:
    """The list ``added_tokens`` of the document, found without parsing all of it."""
    for match in re.finditer(r'"added_tokens"\s*:\s*(?=\[)', text):
        listed, _ = json.JSONDecoder().raw_decode(text, match.end())
        return [token for token in listed if isinstance(token, dict)]
    return []


def highest_id(tokenizer: Tokenizer) -> int:
    """The highest id of a vocabulary whose ids are distinct and of a size a model can have. Raises errors.Tokenizer."""
    size = tokenizer.get_vocab_size(True)
    if size == 0:
        raise TokenizerError("the vocabulary is empty", code="ids")
    # As many tokens as ids from 0 on, and a token for each: the common case, and much faster than the list of all.
    if all(tokenizer.id_to_token(index) is not None for index in range(size)):
        return size - 1
    ids = tokenizer.get_vocab(True).values()
    if len(set(ids)) != len(ids):
        raise TokenizerError("two tokens share an id", code="ids")
    highest = max(ids)
    if highest > MAX_TOKEN_ID:
        raise TokenizerError("a token id is too large", code="ids", expected=f"<= {MAX_TOKEN_ID}", found=highest)
    return highest


def _parts(component: Mapping[str, Any] | None, inner: str) -> Iterator[Mapping[str, Any]]:
    """The part itself, or the parts of a (nested) sequence."""
    if component is None:
        return
    if component.get("type") == "Sequence":
        for part in component.get(inner, []):
            yield from _parts(part, inner)
    else:
        yield component


def _replacement_growth(part: Mapping[str, Any]) -> float:
    pattern, content = part.get("pattern", {}), len(str(part.get("content", "")))
    literal = pattern.get("String") if isinstance(pattern, Mapping) else None
    return max(1.0, content / max(1, len(literal) if isinstance(literal, str) else 1))
