"""Inverse frequencies of the rotary embedding from the header (SPEC 2): plain, YaRN, divisors, local base."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import Parse, UnsupportedArch
from cortiq.model.facts import RopeFacts

if TYPE_CHECKING:
    from cortiq.container import Arch
    from cortiq.container.arch import Yarn


def global_rope(arch: Arch) -> RopeFacts:
    """Rotation of the layers with full attention: ``rope_theta``, ``yarn``, then ``rope_freq_factors``.

    Raises Parse for numbers that give no frequencies, UnsupportedArch for ``yarn.mscale_all_dim``.
    """
    rotary_dim = _rotary_dim(arch.head_dim, arch.partial_rotary_factor, "partial_rotary_factor")
    factor = 1.0 if arch.yarn is None else arch.yarn.attention_factor
    return RopeFacts(_global_frequencies(arch, rotary_dim), factor)


def local_rope(arch: Arch, *, tagged: bool) -> RopeFacts:
    """Rotation of sliding-window layers: ``rope_local_base_freq``, or the global frequencies without it.

    Never scaled by YaRN's attention factor. ``local_partial_rotary_factor`` counts only for layers with an explicit
    SlidingAttention tag (``tagged``). Raises like :func:`global_rope`.
    """
    fraction, key = arch.partial_rotary_factor, "partial_rotary_factor"
    if tagged and arch.local_partial_rotary_factor is not None:
        fraction, key = arch.local_partial_rotary_factor, "local_partial_rotary_factor"
    rotary_dim = _rotary_dim(arch.head_dim, fraction, key)
    if arch.rope_local_base_freq is None:
        return RopeFacts(_global_frequencies(arch, rotary_dim), 1.0)
    return RopeFacts(_as_f32(_plain(arch.rope_local_base_freq, rotary_dim)), 1.0)


def _global_frequencies(arch: Arch, rotary_dim: int) -> tuple[float, ...]:
    inverse = _plain(arch.rope_theta, rotary_dim)
    if arch.yarn is not None:
        inverse = _yarn(inverse, arch.yarn, arch.rope_theta)
    if arch.rope_freq_factors is not None:
        given = np.asarray(arch.rope_freq_factors, np.float64)[: inverse.size]
        inverse = inverse / np.concatenate([given, np.ones(inverse.size - given.size)])
    return _as_f32(inverse)


def _plain(base: float, rotary_dim: int) -> NDArray[np.float64]:
    return np.power(base, -np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)


def _yarn(inverse: NDArray[np.float64], yarn: Yarn, base: float) -> NDArray[np.float64]:
    """YaRN, "NTK by parts": fast dims keep their frequency, slow ones are divided by ``factor``, a ramp joins them."""
    if yarn.mscale_all_dim is not None:
        raise UnsupportedArch("yarn.mscale_all_dim is not supported", code="yarn", section="header.arch.yarn")
    if base == 1.0:
        raise Parse("yarn needs a rope_theta other than 1", code="arch", section="header.arch.rope_theta")
    rotary_dim = 2 * inverse.size

    def correction(rotations: float) -> float:
        return (
            rotary_dim
            * math.log(yarn.original_max_position_embeddings / (rotations * 2 * math.pi))
            / (2 * math.log(base))
        )

    low = max(math.floor(correction(yarn.beta_fast)), 0)
    high = min(max(math.ceil(correction(yarn.beta_slow)), 0), inverse.size - 1)
    ramp = np.clip((np.arange(inverse.size) - low) / max(high - low, 1), 0.0, 1.0)
    return inverse * (1 - ramp) + inverse / yarn.factor * ramp


def _rotary_dim(head_dim: int, fraction: float, key: str) -> int:
    rotary_dim = max(int(head_dim * fraction), 2)
    if rotary_dim > head_dim or rotary_dim % 2:
        raise Parse(
            f"{rotary_dim} rotated dims of a head of {head_dim}: must be even and fit",
            code="arch",
            section=f"header.arch.{key}",
        )
    return rotary_dim


def _as_f32(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(values.astype(np.float32).tolist())
