"""hash64: the 64-bit hash of tensors and sections (SPEC 8). NumPy definition and streaming form.

    acc = XOR over the 64-bit little-endian words w_i, the last one zero padded, of fmix(w_i) ^ (i * GOLDEN)
    hash64 = fmix(acc ^ length)
    fmix(x): x ^= x >> 33; x *= C1; x ^= x >> 33; x *= C2; x ^= x >> 33          modulo 2^64

It finds damaged bits. It is no proof of identity: swapped words and pairs of equal words cancel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import UsageError

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
_C1, _C2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT = np.uint64(33)
_BLOCK_WORDS = 1 << 16  # temporaries of this many words stay in the cache

Buffer = bytes | bytearray | memoryview | NDArray[Any]


class Hash64:
    """hash64 of a stream. Every ``update`` but the last must be a multiple of 8 bytes long."""

    __slots__ = ("_acc", "_length")

    def __init__(self) -> None:
        self._acc = 0
        self._length = 0

    def update(self, data: Buffer) -> None:
        """Append ``data``. Raises UsageError after a chunk whose length was not a multiple of 8."""
        if self._length % 8:
            raise UsageError("only the last chunk of a hash may end within a word", code="hash64_chunk")
        raw = np.frombuffer(data, dtype=np.uint8) if not isinstance(data, np.ndarray) else data.reshape(-1).view("u1")
        whole = raw.size // 8 * 8
        for start in range(0, whole, 8 * _BLOCK_WORDS):
            block = raw[start : min(start + 8 * _BLOCK_WORDS, whole)]
            self._add_words(np.frombuffer(block.tobytes(), dtype="<u8"), (self._length + start) // 8)
        if raw.size > whole:
            last = raw[whole:].tobytes().ljust(8, b"\0")
            self._add_words(np.frombuffer(last, dtype="<u8"), (self._length + whole) // 8)
        self._length += raw.size

    def digest(self) -> int:
        """The hash of everything so far. More may follow."""
        return int(_fmix(np.array([self._acc ^ self._length], np.uint64))[0])

    def _add_words(self, words: NDArray[np.uint64], first: int) -> None:
        salts = np.arange(len(words), dtype=np.uint64) * np.uint64(_GOLDEN) + np.uint64(first * _GOLDEN & _MASK)
        self._acc ^= int(np.bitwise_xor.reduce(_fmix(words) ^ salts))


def hash64(data: Buffer) -> int:
    """hash64 of a contiguous buffer."""
    state = Hash64()
    state.update(data)
    return state.digest()


def _fmix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> _SHIFT)) * _C1
    x = (x ^ (x >> _SHIFT)) * _C2
    return x ^ (x >> _SHIFT)
