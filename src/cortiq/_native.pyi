from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

# layouts and hash64
_Buffer = bytes | bytearray | memoryview | NDArray[Any]

def encode(
    dtype: int,
    encoder: str,
    source: _Buffer,
    source_dtype: int,
    rows: int,
    cols: int,
    planes: Sequence[_Buffer],
    first_row: int = 0,
    isa: str = "",
) -> None: ...
def decode(dtype: int, planes: Sequence[_Buffer], rows: int, cols: int, out: _Buffer, isa: str = "") -> None: ...
def hash64(data: _Buffer, threads: int = 1, isa: str = "") -> int: ...

class Hash64:
    def __init__(self, isa: str = "") -> None: ...
    def update(self, data: _Buffer, threads: int = 1) -> None: ...
    def digest(self) -> int: ...
