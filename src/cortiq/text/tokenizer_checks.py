"""What a ``tokenizer.json`` may not do to the process that reads it: the limits the library itself does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cortiq.errors import Tokenizer as TokenizerError

if TYPE_CHECKING:
    from tokenizers import AddedToken

MAX_TOKENIZER_BYTES = 256 << 20
MAX_TOKEN_ID = (1 << 24) - 1
MAX_ADDED_TOKENS = 100_000
MAX_EXPANSION = 64.0
MAX_PATTERN = 4096
MAX_REPEAT = 256

_QUANTIFIED_GROUP = re.compile(r"\)(?:[*+]|\{\d+,\})")
_REPEAT = re.compile(r"(?<!\\)\{(\d+)(?:,(\d*))?\}")


def check_components(normalizer: Mapping[str, Any] | None, pre_tokenizer: Mapping[str, Any] | None) -> None:
    """Refuse normalizers that multiply a text without bound and patterns that can backtrack exponentially.

    Raises errors.Tokenizer with code ``expand`` or ``regex``.
    """
    growth = 1.0
    for part in [*_parts(normalizer, "normalizers"), *_parts(pre_tokenizer, "pretokenizers")]:
        pattern = part.get("pattern")
        if isinstance(pattern, Mapping) and isinstance(pattern.get("Regex"), str):
            _check_pattern(pattern["Regex"])
        if part.get("type") == "Replace":
            growth *= _replacement_growth(part)
        if growth > MAX_EXPANSION:
            raise TokenizerError("the normalizer can make a text many times longer", code="expand", found=growth)


def check_vocabulary(vocab: Mapping[str, int], added: Mapping[int, AddedToken]) -> None:
    """Ids must be distinct and of a size a model can have; added tokens must have text. Raises errors.Tokenizer."""
    if not vocab:
        raise TokenizerError("the vocabulary is empty", code="ids")
    if len(added) > MAX_ADDED_TOKENS:
        raise TokenizerError("too many added tokens", code="limit", expected=MAX_ADDED_TOKENS, found=len(added))
    highest = max(vocab.values())
    if highest > MAX_TOKEN_ID:
        raise TokenizerError("a token id is too large", code="ids", expected=f"<= {MAX_TOKEN_ID}", found=highest)
    if len(set(vocab.values())) != len(vocab):
        raise TokenizerError("two tokens share an id", code="ids")
    if any(not token.content for token in added.values()):
        raise TokenizerError("an added token is empty", code="parse")


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


def _check_pattern(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN:
        raise TokenizerError("a split pattern is too long", code="regex", expected=MAX_PATTERN, found=len(pattern))
    for match in _REPEAT.finditer(pattern):
        if max(int(match[1]), int(match[2] or 0)) > MAX_REPEAT:
            raise TokenizerError("a split pattern repeats too often", code="regex", found=match[0])
    if _nests_unbounded(pattern):
        raise TokenizerError("a split pattern nests repetitions and could run without end", code="regex", found=pattern)


def _nests_unbounded(pattern: str) -> bool:
    """True when a group that is repeated without bound holds an unbounded repetition itself, as in ``(a+)+``."""
    stack: list[bool] = []
    position, inside = 0, False
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            position += 1
        elif char == "[":
            position = _class_end(pattern, position)
        elif char == "(":
            stack.append(inside)
            inside = False
        elif char == ")" and stack:
            if inside and _QUANTIFIED_GROUP.match(pattern, position):
                return True
            inside = stack.pop() or inside
        elif char in "*+" or (char == "{" and re.match(r"\{\d+,\}", pattern[position:])):
            inside = inside or not _is_possessive(pattern, position)
        position += 1
    return False


def _is_possessive(pattern: str, position: int) -> bool:
    """``x++`` and the second ``+`` of it do not give back what they took, so they cannot be tried again."""
    return pattern[position + 1 : position + 2] == "+" or (position > 0 and pattern[position - 1] in "*+?}")


def _class_end(pattern: str, start: int) -> int:
    """Position of the bracket that closes the character class opened at ``start`` (classes may nest)."""
    depth, position = 0, start
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            position += 1
        elif char == "[":
            depth += 1
        elif char == "]" and position > start + 1:
            depth -= 1
            if depth == 0:
                return position
        position += 1
    return position
