"""Token by token to text, without ever cutting a code point, and exactly the text ``Tokenizer.decode`` gives for the
whole list. Each decoder of the ``tokenizers`` library that language models use is run incrementally here; constant
work per token.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from cortiq.errors import Tokenizer as TokenizerError
from cortiq.text.tokenizer import Tokenizer


class Detokenizer:
    """A stream of ids turned into a stream of text.

    ``skip_special`` leaves out tokens marked special, as ``Tokenizer.decode`` does. Ids without a token (padding rows
    of the embedding) have no text. Raises errors.Tokenizer for a decoder that cannot be run incrementally.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._token = tokenizer.id_to_token
        self._hidden = tokenizer.special_ids if skip_special else frozenset()
        self._stages = list(_stages(tokenizer.decoder_json))

    def push(self, token_id: int) -> str:
        """Text that became certain with this id: possibly empty, never half a character."""
        if token_id in self._hidden or (token := self._token(token_id)) is None:
            return ""
        pieces = [token]
        for stage in self._stages:
            pieces = [out for piece in pieces for out in stage.push(piece)]
        return "".join(pieces)

    def flush(self) -> str:
        """The rest, at the end of the stream; an unfinished character becomes U+FFFD."""
        pieces: list[str] = []
        for stage in self._stages:
            pieces = [out for piece in pieces for out in stage.push(piece)] + stage.flush()
        return "".join(pieces)


class _Stage(ABC):
    """One decoder step over a stream of pieces. ``push`` and ``flush`` return the pieces that became certain."""

    @abstractmethod
    def push(self, piece: str) -> list[str]: ...

    def flush(self) -> list[str]:
        return []


class _ByteLevel(_Stage):
    """GPT-2's byte alphabet. A piece with a character outside it (an added token) stands for its own UTF-8 bytes."""

    def __init__(self) -> None:
        self._bytes = byte_alphabet()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, piece: str) -> list[str]:
        try:
            raw = bytes([self._bytes[c] for c in piece])
        except KeyError:
            raw = piece.encode("utf-8")
        return [self._decoder.decode(raw)]

    def flush(self) -> list[str]:
        return [self._decoder.decode(b"", final=True)]


class _ByteFallback(_Stage):
    """Runs of ``<0xNN>`` are bytes. A run that is not UTF-8 as a whole becomes one U+FFFD per byte, so a run is held
    back until it ends."""

    def __init__(self) -> None:
        self._run = bytearray()

    def push(self, piece: str) -> list[str]:
        if len(piece) == 6 and (value := byte_token_value(piece)) is not None:
            self._run.append(value)
            return []
        return [*self.flush(), piece]

    def flush(self) -> list[str]:
        run, self._run = bytes(self._run), bytearray()
        if not run:
            return []
        try:
            return [run.decode("utf-8")]
        except UnicodeDecodeError:
            return ["�"] * len(run)


class _Replace(_Stage):
    def __init__(self, pattern: str, content: str) -> None:
        self._pattern, self._content = pattern, content

    def push(self, piece: str) -> list[str]:
        return [piece.replace(self._pattern, self._content)]


class _Metaspace(_Stage):
    """The replacement character is a space, and nothing in the first piece unless the scheme never prepends one."""

    def __init__(self, replacement: str, prepends: bool) -> None:
        self._replacement, self._first = replacement, prepends

    def push(self, piece: str) -> list[str]:
        space = "" if self._first else " "
        self._first = False
        return [piece.replace(self._replacement, space)]


class _StripPieces(_Stage):
    """Up to ``start`` leading and ``stop`` trailing characters equal to ``content`` go, from every piece."""

    def __init__(self, content: str, start: int, stop: int) -> None:
        self._content, self._start, self._stop = content, start, stop

    def push(self, piece: str) -> list[str]:
        first = _leading(piece, self._content, self._start)
        last = len(piece) - _leading(piece[::-1], self._content, self._stop)
        return [piece[first:last]]


class _StripText(_Stage):
    """The same after the pieces were fused into one text: only its very beginning counts."""

    def __init__(self, content: str, start: int) -> None:
        self._content, self._left = content, start

    def push(self, piece: str) -> list[str]:
        if not self._left or not piece:
            return [piece]
        count = _leading(piece, self._content, self._left)
        self._left = self._left - count if count == len(piece) else 0
        return [piece[count:]]


class _Spaced(_Stage):
    """No decoder at all: tokens separated by spaces."""

    def __init__(self) -> None:
        self._first = True

    def push(self, piece: str) -> list[str]:
        text = piece if self._first else f" {piece}"
        self._first = False
        return [text]


def _leading(text: str, content: str, limit: int) -> int:
    count = 0
    while count < min(limit, len(text)) and text[count] == content:
        count += 1
    return count


def _stages(decoder: Mapping[str, Any] | None) -> Iterator[_Stage]:
    if decoder is None:
        yield _Spaced()
        return
    fused = False
    for part in _flatten(decoder):
        kind = part.get("type")
        if kind == "Fuse":
            fused = True
            continue
        stage = _stage(part, fused)
        if stage is None:
            raise TokenizerError(f"the decoder {kind!r} cannot be run token by token here", code="decoder")
        yield stage


def _flatten(decoder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if decoder.get("type") == "Sequence":
        for part in decoder.get("decoders", []):
            yield from _flatten(part)
    else:
        yield decoder


def _stage(part: Mapping[str, Any], fused: bool) -> _Stage | None:
    """The incremental form of one decoder, None when it has none. After Fuse only a leading Strip is local."""
    kind, pattern = part.get("type"), part.get("pattern")
    if kind == "Strip":
        content, start, stop = str(part["content"]), int(part["start"]), int(part["stop"])
        if not fused:
            # The library itself fails on a piece that both ends would strip.
            return _StripPieces(content, start, stop) if 0 in (start, stop) else None
        return _StripText(content, start) if stop == 0 else None
    if fused:
        return None
    if kind == "ByteLevel":
        return _ByteLevel()
    if kind == "ByteFallback":
        return _ByteFallback()
    if kind == "Replace" and isinstance(pattern, Mapping) and isinstance(pattern.get("String"), str):
        return _Replace(pattern["String"], str(part["content"]))
    if kind == "Metaspace":
        return _Metaspace(str(part["replacement"]), part.get("prepend_scheme", "always") != "never")
    return None


def byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: the printable character that stands for each of the 256 bytes, as {character: byte}."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + index): b for index, b in enumerate(others)}


def byte_token_value(token: str) -> int | None:
    """The byte a ``<0xNN>`` token stands for, None for any other token."""
    if len(token) == 6 and token.startswith("<0x") and token[5] == ">":
        digits = token[3:5]
        if all(c in "0123456789abcdefABCDEF" for c in digits):
            return int(digits, 16)
    return None
