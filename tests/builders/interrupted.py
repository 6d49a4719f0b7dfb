"""A conversion that is stopped at a chosen place."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cortiq.convert.encode import EncodePool
from cortiq.convert.plan import Planned
from cortiq.layouts.base import Bytes


class Interrupted:
    """Raises ``error`` in place of the ``chunk``-th chunk of the ``tensor``-th tensor; counts what was asked for."""

    def __init__(self, tensor: int, chunk: int = 0, error: BaseException | None = None) -> None:
        self.tensor, self.chunk, self.error = tensor, chunk, error or KeyboardInterrupt()
        self.asked = -1

    def run(self, action: Callable[[], object]) -> bool:
        """Whether it came so far."""
        real = EncodePool.chunks

        def chunks(pool: EncodePool, entry: Planned) -> Iterator[Bytes]:
            self.asked += 1
            for number, part in enumerate(real(pool, entry)):
                if (self.asked, number) == (self.tensor, self.chunk):
                    raise self.error
                yield part

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EncodePool, "chunks", chunks)
            try:
                action()
            except type(self.error) as caught:
                assert caught is self.error  # noqa: PT017 - whether it raises is what we ask
                return True
        return False
