from __future__ import annotations

import numpy as np
import pytest

from cortiq.errors import UsageError
from cortiq.layouts import layout

U8 = layout("u8")


def test_bytes_are_their_own_payload() -> None:
    values = np.arange(256, dtype=np.uint8).reshape(2, 128)
    assert U8.encode(values) == values.tobytes()
    np.testing.assert_array_equal(U8.decode(values.tobytes(), (2, 128)), values)


def test_weights_are_refused() -> None:
    with pytest.raises(UsageError, match="not weights"):
        U8.encode(np.zeros(4, np.float32))
