"""The tokenizer section of a file (SPEC 6): the bytes of a Hugging Face ``tokenizer.json``, run by the library that
defines them, ``tokenizers``. Owns loading, the checks a hostile section needs, and the vocabulary questions of the
engine. The library is imported when the first tokenizer is built.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from cortiq.errors import Tokenizer as TokenizerError
from cortiq.errors import UsageError
from cortiq.text.tokenizer_checks import MAX_TOKENIZER_BYTES, check_components, check_vocabulary

if TYPE_CHECKING:
    import tokenizers

T = TypeVar("T")


class Tokenizer:
    """A tokenizer built from the bytes of ``tokenizer.json``. Safe to share between threads.

    Padding and truncation of the file are ignored: they would change a prompt without being asked.
    Raises errors.Tokenizer for bytes the library cannot read or that could hang or exhaust it.
    """

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = bytes(data)
        self._lock = Lock()
        self._inner = self._load(self._data)
        self._special = frozenset(i for i, t in self._inner.get_added_tokens_decoder().items() if t.special)

    @staticmethod
    def _load(data: bytes) -> tokenizers.Tokenizer:
        if len(data) > MAX_TOKENIZER_BYTES:
            raise TokenizerError(
                "tokenizer.json is too large", code="limit", expected=MAX_TOKENIZER_BYTES, found=len(data)
            )
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TokenizerError("tokenizer.json is not UTF-8", code="parse", offset=error.start) from error
        from tokenizers import Tokenizer as Library

        inner = _guarded(lambda: Library.from_str(text), "tokenizer.json cannot be read", "parse")
        inner.no_padding()
        inner.no_truncation()
        check_components(component_json(inner.normalizer), component_json(inner.pre_tokenizer))
        check_vocabulary(inner.get_vocab(True), inner.get_added_tokens_decoder())
        return inner

    @property
    def json_bytes(self) -> bytes:
        """The bytes the tokenizer was built from."""
        return self._data

    @property
    def vocab_size(self) -> int:
        """Number of distinct ids, added tokens included."""
        return int(self._inner.get_vocab_size(True))

    @cached_property
    def max_id(self) -> int:
        """Highest id an encoding can hold."""
        return max(self._inner.get_vocab(True).values())

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of the tokens marked special; ``decode`` leaves them out by default."""
        return self._special

    @cached_property
    def added_ids(self) -> frozenset[int]:
        """Ids of all added tokens, special or not: text equal to one of them becomes that id."""
        return frozenset(self._inner.get_added_tokens_decoder())

    @cached_property
    def decoder_json(self) -> dict[str, Any] | None:
        """The decoder part of the file, None when there is none."""
        return component_json(self._inner.decoder)

    @cached_property
    def _frame(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        plain, framed = self.encode("a", add_special_tokens=False), self.encode("a")
        at = next(i for i in range(len(framed) - len(plain) + 1) if framed[i : i + len(plain)] == plain)
        return tuple(framed[:at]), tuple(framed[at + len(plain) :])

    @property
    def prefix_ids(self) -> tuple[int, ...]:
        """Ids the file's own post-processor puts in front of a text (the BOS, usually)."""
        return self._frame[0]

    @property
    def suffix_ids(self) -> tuple[int, ...]:
        """Ids the file's own post-processor puts behind a text (an EOS, rarely)."""
        return self._frame[1]

    def encode(self, text: str, add_special_tokens: bool = True, *, parse_special: bool = True) -> list[int]:
        """Ids of ``text``.

        ``add_special_tokens`` applies the file's post-processor (BOS and the like); rendered chats want False.
        ``parse_special=False`` reads a special token spelled out in the text as plain text, for untrusted input.
        """
        if not isinstance(text, str):
            raise UsageError("text must be str", code="text", found=type(text).__name__)
        if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
            raise TokenizerError("the text holds a lone surrogate and is not Unicode text", code="text")
        with self._lock:
            self._inner.encode_special_tokens = not parse_special
            encoding = _guarded(
                lambda: self._inner.encode(text, add_special_tokens=add_special_tokens), "cannot encode", "encode"
            )
        return list(encoding.ids)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of ``ids`` as the library gives it; ids outside the vocabulary (padding rows) have no text."""
        checked = [self._checked(i) for i in ids]
        return _guarded(
            lambda: self._inner.decode(checked, skip_special_tokens=skip_special), "cannot decode", "decode"
        )

    def id_to_token(self, token_id: int) -> str | None:
        """The token as the vocabulary spells it, None for an id without a token."""
        return self._inner.id_to_token(self._checked(token_id))

    def token_to_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it, None when there is none."""
        return self._inner.token_to_id(token)

    def check_ids(self, rows: int) -> None:
        """Raise errors.Tokenizer when the tokenizer can produce an id beyond the ``rows`` of the embedding."""
        if self.max_id >= rows:
            raise TokenizerError(
                "the tokenizer has ids the embedding does not", code="ids", expected=f"< {rows}", found=self.max_id
            )

    def check_special(self, named: Iterable[tuple[str, int | None]]) -> None:
        """Raise errors.Tokenizer when a configured id, given as (name, id), is not in the vocabulary."""
        for name, token_id in named:
            if token_id is not None and self.id_to_token(token_id) is None:
                raise TokenizerError(f"{name} is not in the vocabulary", code="ids", found=token_id)

    @staticmethod
    def _checked(token_id: int) -> int:
        value = int(token_id)
        if not 0 <= value < 1 << 32:
            raise UsageError("a token id must be in [0, 2^32)", code="token", found=value)
        return value


def component_json(component: object) -> dict[str, Any] | None:
    """The JSON of a tokenizer part (normalizer, decoder ...), None for an absent part."""
    if component is None:
        return None
    state: bytes = component.__getstate__()  # type: ignore[assignment]
    parsed = json.loads(state)
    return parsed if isinstance(parsed, dict) else None


def _guarded(action: Callable[[], T], what: str, code: str) -> T:
    """Run a library call. Its own errors and the panics of its Rust core become errors.Tokenizer."""
    try:
        return action()
    except Exception as error:
        raise TokenizerError(f"{what}: {error}", code=code) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"{what}: the tokenizer library failed inside: {error}", code=code) from error
