"""What one can ask of a conversion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cortiq.errors import UsageError
from cortiq.layouts import Encoder
from cortiq.layouts.vbit import MEAN_BITS
from cortiq.quantize import Override, Policy, VbitBudget, parse_dtype, parse_override
from cortiq.quantize.policy import SAME, is_expert
from cortiq.quantize.vbit_budget import RouteCounts

Progress = Callable[[int, int], None]
"""Called with (source bytes done, source bytes in all)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertOptions:
    """Options of ``convert``. Dtypes are SPEC's names; ``parse`` takes what people write.

    ``quant``              dtype of the layers' matrices
    ``embed``, ``head``    dtype of the embedding and the head, ``"same"`` for ``quant``; None for the default rule
    ``overrides``          dtypes by pattern of the tensor name
    ``mean_bits``          bits a weight of vbit tensors, 3 to 8, scales not counted; None for 4.25
    ``route_counts``       by layer, how often each expert was selected: bits of vbit experts follow it
    ``encoder``            "best" (smallest error) or "plain" (the formulas of SPEC 3.2)
    ``threads``            encoder threads; the bytes written do not depend on it
    ``force``              replace an existing output
    ``source_model``       what the file says it was made from; None for the name of the folder or file
    ``revision``           revision of that source, when it is known
    ``allow_no_tokenizer`` write a file without a tokenizer when the source has none
    ``digests``            carry SHA-256 digests of everything; without them the bytes are those of other writers
    ``shard_bytes``        write a set of files of about this size, four bytes counted for each weight (SPEC 10)
    ``resume``             keep what is finished when interrupted, and go on from what is kept; not for sets
    """

    quant: str = "q8_row"
    embed: str | None = None
    head: str | None = None
    overrides: tuple[Override, ...] = ()
    mean_bits: float | None = None
    route_counts: RouteCounts | None = None
    encoder: Encoder = "best"
    threads: int = 1
    force: bool = False
    source_model: str | None = None
    revision: str | None = None
    allow_no_tokenizer: bool = False
    digests: bool = True
    shard_bytes: int | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= 1024:
            raise UsageError("threads must be a number from 1 to 1024", code="threads", found=self.threads)
        if self.resume and self.shard_bytes is not None:
            raise UsageError("a set of files is written in one go: resume one file, then `cortiq shard`", code="resume")
        self.policy()
        self.budget()

    def policy(self, names: Iterable[str] = ()) -> Policy:
        """The dtype rules of these options for a model with tensors of these names.

        Raises UsageError.tensor_rule when one of ``overrides`` matches none of them; without names it is not asked.
        """
        every = tuple(names)
        policy = Policy(
            quant=self.quant,
            embed=self.embed,
            head=self.head,
            overrides=self.overrides,
            encoder=self.encoder,
            has_experts=any(map(is_expert, every)),
        )
        if every:
            policy.check_overrides(every)
        return policy

    def budget(self) -> VbitBudget:
        """The bits of vbit tensors."""
        return VbitBudget(MEAN_BITS if self.mean_bits is None else self.mean_bits, self.route_counts)

    def record(self) -> dict[str, object]:
        """What of the options has an influence on the bytes, for the file's provenance."""
        given: dict[str, object] = {"quant": self.quant, "encoder": self.encoder}
        if self.embed is not None:
            given["embed"] = self.embed
        if self.head is not None:
            given["head"] = self.head
        if self.overrides:
            given["tensors"] = [f"{rule.pattern.pattern}={rule.dtype}" for rule in self.overrides]
        if self.mean_bits is not None:
            given["mean_bits"] = self.mean_bits
        if self.route_counts is not None:
            given["route_counts"] = {str(layer): list(row) for layer, row in sorted(self.route_counts.items())}
        return given


def parse_end(text: str) -> str:
    """The dtype of an embedding or head: a dtype, or ``same``. Raises as ``parse_dtype``."""
    return SAME if text.lower() == SAME else parse_dtype(text)


def parse_overrides(texts: tuple[str, ...]) -> tuple[Override, ...]:
    """Tensor rules ``REGEX=dtype``. Raises as ``parse_override``."""
    return tuple(parse_override(text) for text in texts)
