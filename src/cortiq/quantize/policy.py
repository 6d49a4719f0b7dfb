"""Which dtype a tensor gets: by its name and shape, never by the model (SPEC 3.2, 11).

    1-D and tiny tensors, and small matrices that steer (routers, gates)    f16
    embedding and head                                                      as the layers, but q8_row below 6 bits
    other matrices                                                          the dtype asked for

q2tp is for the gate and up projections of feed-forward blocks: of the experts where the model has some, else of the
dense blocks. The other matrices become q4tp when it is asked for.

A matrix whose columns are no multiple of 32 cannot be q4_tiled and the like; it becomes q8_2f. With the ``best``
encoder so does a matrix of the layers that q8_row would serve badly: its values decide that (``column_factors``). What
one asks for by name or pattern goes before all of this, and is never changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from cortiq.errors import CortiqError, UsageError
from cortiq.layouts import ENCODERS, Encoder, layout
from cortiq.layouts.sizes import GROUP
from cortiq.quantize.column_factors import COLUMN_FACTORS, ROW_SCALES
from cortiq.quantize.dtypes import bits_per_weight, parse_dtype

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
SAME = "same"
_FEWEST_ENDS_BITS = 6.0
_ENDS_FALLBACK = ROW_SCALES
_RAGGED_FALLBACK = COLUMN_FACTORS
_SMALLEST = 32
_F16_SUFFIXES = (
    *(f"linear_attn.in_proj_{part}.weight" for part in "ab"),
    *(f"kda_attn.{part}_proj.weight" for part in ("f_a", "f_b", "b", "g_a", "g_b")),
    *(f"altup.{part}.weight" for part in ("correction_coefs", "prediction_coefs", "modality_router")),
    *(f"laurel.linear_{part}.weight" for part in ("left", "right")),
    "_conv1d.weight",
    "per_layer_input_gate.weight",
    ".per_layer_projection.weight",
    "mlp.gate.weight",
    "shared_expert_gate.weight",
    "self_attn.g_proj.weight",
)
_EXPERT_PARTS = (".experts.", ".shared_expert.", ".shared_experts.")
_GATE_UP_SUFFIXES = tuple(f"{part}.weight" for part in ("gate_proj", "up_proj", ".w1", ".w3"))


@dataclass(frozen=True, slots=True)
class Override:
    """Tensors whose name ``pattern`` finds (anywhere in it) get ``dtype``."""

    pattern: re.Pattern[str]
    dtype: str


def parse_override(text: str) -> Override:
    """``REGEX=dtype``. Raises UsageError for anything else, and as ``parse_dtype``."""
    pattern, equals, dtype = text.rpartition("=")
    if not equals or not pattern:
        raise UsageError("a tensor rule is REGEX=dtype", code="tensor_rule", found=text)
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"not a regular expression: {error}", code="tensor_rule", found=pattern) from error
    return Override(compiled, parse_dtype(dtype))


@dataclass(frozen=True, slots=True)
class Choice:
    """The dtype of one tensor.

    ``wanted``  the dtype the policy would have taken, when the shape does not allow it; else None
    ``forced``  asked for by pattern: values that do not fit the dtype are an error, not a reason for another one
    ``weigh``   q8_row, or q8_2f where the columns differ enough
    """

    dtype: str
    wanted: str | None = None
    forced: bool = False
    weigh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """``quant`` is the dtype of the layers' matrices. ``embed`` and ``head`` are those of the embedding and the head,
    None for the rule above; ``SAME`` stands for ``quant``. Of the ``overrides`` the last that matches counts.
    ``encoder`` is ``best`` or ``plain``; ``has_experts`` says whether the model has expert matrices. Dtypes are SPEC's
    names.
    """

    quant: str
    embed: str | None = None
    head: str | None = None
    overrides: tuple[Override, ...] = ()
    encoder: Encoder = "best"
    has_experts: bool = False

    def __post_init__(self) -> None:
        if self.encoder not in ENCODERS:
            expected = " or ".join(ENCODERS)
            raise UsageError("unknown encoder", code="encoder", expected=expected, found=self.encoder)

    def choose(self, name: str, shape: tuple[int, ...]) -> Choice:
        """The dtype of tensor ``name``. Raises Parse or Bounds for an override that its shape does not allow."""
        for override in reversed(self.overrides):
            if override.pattern.search(name):
                _check(override.dtype, name, shape)
                return Choice(override.dtype, forced=True)
        if is_small(name, shape):
            return Choice("f16")
        if name == EMBEDDING:
            return _fitting(self._end(self.embed), shape)
        if name == HEAD:
            return _fitting(self._end(self.head), shape)
        dtype = self._layer_dtype(name)
        return Choice(dtype, weigh=True) if dtype == ROW_SCALES and self.encoder == "best" else _fitting(dtype, shape)

    def check_overrides(self, names: Iterable[str]) -> None:
        """Raise UsageError for a pattern that finds none of ``names``: a misspelt rule must not pass unseen."""
        every = tuple(names)
        for override in self.overrides:
            if not any(override.pattern.search(name) for name in every):
                raise UsageError("a tensor rule matches no tensor", code="tensor_rule", found=override.pattern.pattern)

    def _layer_dtype(self, name: str) -> str:
        if self.quant != "q2tp":
            return self.quant
        wanted = is_expert(name) if self.has_experts else ".mtp." not in name
        return "q2tp" if wanted and name.endswith(_GATE_UP_SUFFIXES) else "q4tp"

    def _end(self, given: str | None) -> str:
        if given == SAME:
            return self._layer_dtype("")
        if given is not None:
            return given
        return self.quant if bits_per_weight(self.quant) >= _FEWEST_ENDS_BITS else _ENDS_FALLBACK


def is_small(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is a vector, tiny, or one of the matrices that steer: f16 unless asked for by pattern."""
    return len(shape) != 2 or prod(shape) < _SMALLEST or name.endswith(_F16_SUFFIXES)


def is_expert(name: str) -> bool:
    """Whether a tensor belongs to an expert, shared ones included."""
    return any(part in name for part in _EXPERT_PARTS)


def _fitting(dtype: str, shape: tuple[int, ...]) -> Choice:
    grouped = dtype not in ("f32", "f16", "bf16", "q8_row", "q8_2f", "q4_block")
    return Choice(_RAGGED_FALLBACK, wanted=dtype) if grouped and shape[1] % GROUP else Choice(dtype)


def _check(dtype: str, name: str, shape: tuple[int, ...]) -> None:
    try:
        layout(dtype).payload_nbytes(shape)
    except CortiqError as error:
        error.tensor = name
        raise
