"""What one can ask of a conversion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cortiq.errors import UsageError
from cortiq.layouts import Encoder
from cortiq.quantize import Override, Policy, parse_dtype, parse_override
from cortiq.quantize.policy import SAME

Progress = Callable[[int, int], None]
"""Called with (source bytes done, source bytes in all)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertOptions:
    """Options of ``convert``. Dtypes are SPEC's names; ``parse`` takes what people write.

    ``quant``              dtype of the layers' matrices
    ``embed``, ``head``    dtype of the embedding and the head, ``"same"`` for ``quant``; None for the default rule
    ``overrides``          dtypes by pattern of the tensor name
    ``encoder``            "best" (smallest error) or "plain" (the formulas of SPEC 3.2)
    ``threads``            encoder threads; the bytes written do not depend on it
    ``force``              replace an existing output
    ``source_model``       what the file says it was made from; None for the name of the folder or file
    ``revision``           revision of that source, when it is known
    ``allow_no_tokenizer`` write a file without a tokenizer when the source has none
    ``digests``            carry SHA-256 digests of everything; without them the bytes are those of other writers
    """

    quant: str = "q8_row"
    embed: str | None = None
    head: str | None = None
    overrides: tuple[Override, ...] = ()
    encoder: Encoder = "best"
    threads: int = 1
    force: bool = False
    source_model: str | None = None
    revision: str | None = None
    allow_no_tokenizer: bool = False
    digests: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= 1024:
            raise UsageError("threads must be a number from 1 to 1024", code="threads", found=self.threads)
        self.policy()

    def policy(self) -> Policy:
        """The dtype rules of these options."""
        return Policy(
            quant=self.quant, embed=self.embed, head=self.head, overrides=self.overrides, encoder=self.encoder
        )

    def record(self) -> dict[str, object]:
        """What of the options has an influence on the bytes, for the file's provenance."""
        given: dict[str, object] = {"quant": self.quant, "encoder": self.encoder}
        if self.embed is not None:
            given["embed"] = self.embed
        if self.head is not None:
            given["head"] = self.head
        if self.overrides:
            given["tensors"] = [f"{rule.pattern.pattern}={rule.dtype}" for rule in self.overrides]
        return given


def parse_end(text: str) -> str:
    """The dtype of an embedding or head: a dtype, or ``same``. Raises as ``parse_dtype``."""
    return SAME if text.lower() == SAME else parse_dtype(text)


def parse_overrides(texts: tuple[str, ...]) -> tuple[Override, ...]:
    """Tensor rules ``REGEX=dtype``. Raises as ``parse_override``."""
    return tuple(parse_override(text) for text in texts)
