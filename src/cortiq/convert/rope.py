"""Scaling of the rotary embedding: from Hugging Face's and llama.cpp's terms to the header's ``arch`` (SPEC 2).

    default   nothing
    linear    ``rope_freq_factors``, all ``factor``
    llama3    ``rope_freq_factors``: 1 for fast dims, ``factor`` for slow ones, a smooth passage in between
    yarn      ``yarn``; where Hugging Face's ramp is not the header's, the ramp as ``rope_freq_factors``

Any other kind raises UnsupportedArch.rope.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cortiq.convert.fields import JSON, Fields
from cortiq.errors import UnsupportedArch

_KIND_KEYS = ("rope_type", "type")


@dataclass(frozen=True, slots=True)
class RopeContext:
    """What a scaling is applied to. ``rotary_dim`` dims of a head rotate, with inverse frequencies theta^(-2i/dim)."""

    theta: float
    rotary_dim: int
    max_positions: int

    def inverse_frequencies(self) -> list[float]:
        """Unscaled, one per pair of dims."""
        return [self.theta ** (-2 * i / self.rotary_dim) for i in range(self.rotary_dim // 2)]


def scaling_fields(table: JSON, context: RopeContext, where: str) -> dict[str, object]:
    """The keys of ``arch`` for a Hugging Face ``rope_scaling`` or ``rope_parameters`` object, without its theta.

    Raises UnsupportedArch for an unknown kind (code ``rope``) or key (code ``config``), SourceError.config for values
    that cannot be meant.
    """
    fields = Fields(table, where, {"truncate": True})
    kind = fields.first(*_KIND_KEYS)
    reader = _READERS.get("default" if kind is None else str(kind))
    if reader is None:
        raise UnsupportedArch(
            f"{where}: this scaling of the rotary embedding is not supported",
            code="rope",
            expected=", ".join(_READERS),
            found=kind,
        )
    scaled = reader(fields, context)
    # Keys of other kinds than the one named are what configuration classes write beside it; they have no effect.
    fields.refuse_rest({"rope_theta", "finetuned", "partial_rotary_factor"}, {})
    return scaled


def linear_fields(factor: float, context: RopeContext) -> dict[str, object]:
    """Every position divided by ``factor``."""
    return {} if factor == 1.0 else {"rope_freq_factors": [factor] * (context.rotary_dim // 2)}


def yarn_fields(profile: Mapping[str, float], context: RopeContext, *, truncate: bool = True) -> dict[str, object]:
    """``profile`` holds the header's keys of ``yarn``, all of them.

    The header's ramp ends at the last pair of dims at the latest. Hugging Face lets it end later, and, without
    ``truncate``, between dims. Such a ramp is written as divisors, beside a ``yarn`` of factor 1 that carries the
    attention factor.
    """
    low = _correction(profile["beta_fast"], profile, context)
    high = _correction(profile["beta_slow"], profile, context)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, context.rotary_dim - 1)
    pairs = context.rotary_dim // 2
    fields: dict[str, object] = {"max_position_embeddings": _stretched(profile, context)}
    if truncate and low < high < pairs:
        return fields | {"yarn": dict(profile)}
    if low == high:
        high += 0.001
    divisors = []
    for i in range(pairs):
        ramp = min(max((i - low) / (high - low), 0.0), 1.0)
        divisors.append(1 / ((1 - ramp) + ramp / profile["factor"]))
    return fields | {"yarn": {**profile, "factor": 1.0}, "rope_freq_factors": divisors}


def default_attention_factor(factor: float) -> float:
    """YaRN's scale of cosine and sine when none is given."""
    return _mscale(factor, 1.0)


def _default(fields: Fields, context: RopeContext) -> dict[str, object]:
    return {}


def _linear(fields: Fields, context: RopeContext) -> dict[str, object]:
    return linear_fields(fields.number("factor"), context)


def _llama3(fields: Fields, context: RopeContext) -> dict[str, object]:
    factor = fields.number("factor")
    low, high = fields.number("low_freq_factor"), fields.number("high_freq_factor")
    original = fields.count("original_max_position_embeddings")
    if not low < high:
        raise fields.wrong("high_freq_factor", f"more than low_freq_factor {low}", high)
    divisors = []
    for inverse in context.inverse_frequencies():
        rotations = original * inverse / (2 * math.pi)
        smooth = min(max((rotations - low) / (high - low), 0.0), 1.0)
        divisors.append(1 / ((1 - smooth) / factor + smooth))
    return {"rope_freq_factors": divisors}


def _yarn(fields: Fields, context: RopeContext) -> dict[str, object]:
    factor = fields.number("factor")
    mscale, mscale_all = fields.optional_number("mscale"), fields.optional_number("mscale_all_dim")
    attention = fields.optional_number("attention_factor")
    if attention is None:
        attention = default_attention_factor(factor)
        if mscale is not None and mscale_all is not None:
            attention = _mscale(factor, mscale) / _mscale(factor, mscale_all)
    profile = {
        "factor": factor,
        "original_max_position_embeddings": fields.optional_count("original_max_position_embeddings")
        or context.max_positions,
        "beta_fast": fields.optional_number("beta_fast") or 32.0,
        "beta_slow": fields.optional_number("beta_slow") or 1.0,
        "attention_factor": attention,
    }
    if context.theta == 1.0:
        raise fields.wrong("rope_theta", "other than 1 for yarn", context.theta)
    return yarn_fields(profile, context, truncate=fields.flag("truncate"))


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _correction(rotations: float, profile: Mapping[str, float], context: RopeContext) -> float:
    """The dim that turns ``rotations`` times within the original context."""
    turns = profile["original_max_position_embeddings"] / (rotations * 2 * math.pi)
    return context.rotary_dim * math.log(turns) / (2 * math.log(context.theta))


def _stretched(profile: Mapping[str, float], context: RopeContext) -> int:
    """YaRN exists to reach ``factor`` times the original context; configurations often keep the old limit."""
    return max(context.max_positions, int(profile["factor"] * profile["original_max_position_embeddings"]))


_READERS = {"default": _default, "linear": _linear, "llama3": _llama3, "yarn": _yarn}
