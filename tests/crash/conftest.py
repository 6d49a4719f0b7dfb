from __future__ import annotations

from collections.abc import Iterator

import pytest

from builders.traced import Zygote


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()
