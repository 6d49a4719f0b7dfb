from collections.abc import Sequence
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

# The processor (csrc/bind/core.cpp)
def cpu_model_name() -> str: ...
def usable_cpus() -> int: ...
def best_isa() -> str: ...
def supported_isas() -> list[str]: ...

class MapGuard:
    def __init__(self, address: int, nbytes: int) -> None: ...
    @property
    def lost(self) -> bool: ...

# layouts and hash64
_Buffer = bytes | bytearray | memoryview | NDArray[Any]

def encode(
    dtype: int,
    encoder: str,
    values: _Buffer,
    planes: Sequence[_Buffer],
    survey: _Buffer,
    first_row: int = 0,
    isa: str = "",
) -> None: ...
def decode(dtype: int, payload: _Buffer, rows: int, values: _Buffer, first_row: int = 0, isa: str = "") -> None: ...
def hash64(data: _Buffer, threads: int = 1, isa: str = "") -> int: ...

class Hash64:
    def __init__(self, isa: str = "") -> None: ...
    def update(self, data: _Buffer, threads: int = 1) -> None: ...
    def digest(self) -> int: ...

# Operators other than products, singly (csrc/bind/ops.cpp)

def rmsnorm(
    isa: str, x: NDArray[np.float32], weight: NDArray[np.float32], eps: float, plus_one: bool
) -> NDArray[np.float32]: ...
def rope(
    isa: str, x: NDArray[np.float32], position: int, inv_freq: NDArray[np.float32], attention_factor: float
) -> NDArray[np.float32]: ...
def glu(isa: str, act: str, gate: NDArray[np.float32], up: NDArray[np.float32]) -> NDArray[np.float32]: ...
def attention(
    isa: str,
    q: NDArray[np.float32],
    k: NDArray[np.float32],
    v: NDArray[np.float32],
    scale: float,
    window: int,
    softcap: float,
    kv_dtype: str,
) -> NDArray[np.float32]: ...
def softcap(isa: str, x: NDArray[np.float32], scale: float, cap: float) -> NDArray[np.float32]: ...
def exp(isa: str, x: NDArray[np.float32]) -> NDArray[np.float32]: ...
def tanh(isa: str, x: NDArray[np.float32]) -> NDArray[np.float32]: ...

# The executor (csrc/bind/plan.cpp)

class PlanStats(TypedDict):
    isa: str
    mode: Literal["fast", "exact"]
    threads: int
    kv_bytes: int
    weight_bytes_per_token: int
    steps: int
    phases: int
    last_step_ns: int
    heap_allocations_last_step: int
    allocations: int

class Plan:
    def __init__(
        self,
        isa: str,
        mode: str,
        threads: int,
        max_tokens: int,
        max_outputs: int,
        context: int,
        max_sequences: int,
        kv_dtype: str,
    ) -> None: ...
    def tensor(self, owner: object, dtype: int, rows: int, cols: int, address: int, nbytes: int, limit: int) -> int: ...
    def vector(self, values: NDArray[np.float32]) -> int: ...
    def buffer(self, width: int) -> int: ...
    def kv_layer(self, kv_heads: int, head_dim: int, window: int = 0) -> int: ...
    def embed(self, *, out: int, weight: int, scale: float = 1.0) -> None: ...
    def rmsnorm(
        self, *, inp: int, out: int, weight: int, eps: float, plus_one: bool = False, accumulate: bool = False
    ) -> None: ...
    def linear(self, *, inp: int, segments: Sequence[tuple[int, int, int, int]], accumulate: bool = False) -> None: ...
    def rope_append(
        self,
        *,
        q: int,
        k: int,
        v: int,
        kv: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        inv_freq: int,
        attention_factor: float = 1.0,
        q_norm: int = -1,
        k_norm: int = -1,
        eps: float = 1e-6,
        plus_one: bool = False,
    ) -> None: ...
    def attention(
        self,
        *,
        q: int,
        out: int,
        kv: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        scale: float,
        softcap: float = 0.0,
    ) -> None: ...
    def glu(self, *, inp: int, gate: int, up: int, out: int, act: str) -> None: ...
    def select(self) -> None: ...
    def logits(self, *, inp: int, weight: int, softcap: float = 0.0, scale: float = 1.0) -> None: ...
    def finish(self) -> None: ...
    def new_sequence(self, slot: int = 0) -> int: ...
    def free_sequence(self, sequence: int) -> None: ...
    def length(self, sequence: int) -> int: ...
    def truncate(self, sequence: int, n: int) -> None: ...
    def step(
        self,
        sequences: NDArray[np.int32],
        counts: NDArray[np.int32],
        tokens: NDArray[np.int32],
        wanted: NDArray[np.uint8],
        out: NDArray[np.float32],
    ) -> int: ...
    def cancel(self) -> None: ...
    def stats(self) -> PlanStats: ...

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
def has_kernels(isa: str, dtype_id: int) -> bool: ...
def gather(isa: str, dtype_id: int, weight: Any, rows: int, cols: int, row: int) -> NDArray[np.float32]: ...
def quantize_dequantize(isa: str, x: NDArray[np.float32]) -> NDArray[np.float32]: ...

# Measurements of the machine (csrc/bind/probe.cpp)

def read_seconds(data: NDArray[np.uint8], threads: int) -> float: ...

# sampling (csrc/bind/sampling.cpp)
class Sampler:
    position: int
    def __init__(
        self,
        vocab_size: int,
        *,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        repetition_penalty: float,
        presence_penalty: float,
        frequency_penalty: float,
        seed: int,
        logprobs: int,
        logit_bias: Sequence[tuple[int, float]] = ...,
        isa: str = "",
    ) -> None: ...
    def accept(self, id: int, generated: bool = True) -> None: ...
    def sample(self, logits: NDArray[np.float32]) -> tuple[int, float, list[tuple[int, float]]]: ...
