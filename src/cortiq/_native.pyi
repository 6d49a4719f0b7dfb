# --- sampling ---
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

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
    def sample(self, logits: npt.NDArray[np.float32]) -> tuple[int, float, list[tuple[int, float]]]: ...
