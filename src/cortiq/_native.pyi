from typing import Any

import numpy as np
from numpy.typing import NDArray

# Linear operators
def linear(
    isa: str,
    mode: str,
    dtype_id: int,
    weight: Any,
    rows: int,
    cols: int,
    x: NDArray[np.float32],
    r0: int = 0,
    r1: int = -1,
) -> NDArray[np.float32]: ...
def gather(isa: str, dtype_id: int, weight: Any, rows: int, cols: int, row: int) -> NDArray[np.float32]: ...
def quantize_dequantize(isa: str, x: NDArray[np.float32]) -> NDArray[np.float32]: ...
def read_probe(buffer: Any) -> int: ...
