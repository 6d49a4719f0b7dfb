from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from builders.weights import hash_vectors
from cortiq.container import hash64 as numpy_form
from cortiq.errors import UsageError


@pytest.fixture(params=["numpy", "scalar", "avx2", "avx512"])
def hash64(request: pytest.FixtureRequest) -> Callable[[bytes], int]:
    if request.param == "numpy":
        return numpy_form.hash64
    core = pytest.importorskip("cortiq._native", reason="the native core is not built")
    if request.param not in core.supported_isas():
        pytest.skip(f"this processor has no {request.param}")
    return lambda data: int(core.hash64(data, isa=request.param))


@pytest.mark.parametrize(
    ("data", "expected"), hash_vectors(), ids=lambda v: f"{len(v)}" if isinstance(v, bytes) else ""
)
def test_upstream_vectors(hash64: Callable[[bytes], int], data: bytes, expected: int) -> None:
    assert hash64(data) == expected


def test_definition_word_by_word(hash64: Callable[[bytes], int]) -> None:
    mask = 2**64 - 1

    def fmix(x: int) -> int:
        x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & mask
        x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & mask
        return x ^ x >> 33

    noise = np.random.default_rng(0).bytes(700)
    for length in (*range(0, 200), 511, 512, 513, 700):
        acc = length
        for i in range(0, length, 8):
            word = int.from_bytes(noise[i : min(i + 8, length)], "little")
            acc ^= fmix(word) ^ (i // 8 * 0x9E3779B97F4A7C15 & mask)
        assert hash64(noise[:length]) == fmix(acc)


def test_alignment_does_not_matter(hash64: Callable[[memoryview], int]) -> None:
    noise = memoryview(np.random.default_rng(1).bytes(4096))
    for offset in range(9):
        assert hash64(noise[offset : offset + 3000]) == numpy_form.hash64(bytes(noise[offset : offset + 3000]))


@pytest.mark.parametrize("form", ["numpy", "native"])
def test_a_stream_gives_the_same(form: str) -> None:
    noise = np.random.default_rng(2).bytes(100_003)
    if form == "numpy":
        state = numpy_form.Hash64()
    else:
        core = pytest.importorskip("cortiq._native", reason="the native core is not built")
        state = core.Hash64()
    assert state.digest() == numpy_form.hash64(b"")
    for begin, end in ((0, 8), (8, 8), (8, 70_000), (70_000, 100_003)):
        state.update(noise[begin:end])
    assert state.digest() == numpy_form.hash64(noise)
    with pytest.raises(UsageError, match="hash64_chunk"):
        state.update(b"more")


def test_threads_do_not_matter() -> None:
    core = pytest.importorskip("cortiq._native", reason="the native core is not built")
    data = np.random.default_rng(3).integers(0, 256, (9 << 20) + 5, dtype=np.uint8)
    assert len({core.hash64(data, threads) for threads in (1, 2, 3, 7)}) == 1
