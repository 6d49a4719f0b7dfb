"""How much of each skill a blend holds, by how well each fits the prompt (SPEC 9, claim 14)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import NonFinite, UsageError


def blend_weights(energies: Sequence[float], temperature: float) -> NDArray[np.float64]:
    """``softmax(-E / T)``: f64 [skills], each from 0 to 1, together 1. Equal energies share equally.

    At ``temperature`` 0 the skill of the smallest energy has everything, the first one of several.

    Raises NonFinite.energy for an energy that is NaN or infinite, UsageError.temperature for one below 0 or NaN,
    UsageError.blend for no skills.
    """
    if len(energies) == 0:
        raise UsageError("there are no skills to blend", code="blend")
    if not temperature >= 0:
        raise UsageError("a blend has no such temperature", code="temperature", expected="0 or more", found=temperature)
    values: NDArray[np.float64] = np.asarray(energies, np.float64)
    if not np.isfinite(values).all():
        found = int(np.flatnonzero(~np.isfinite(values))[0])
        raise NonFinite(f"the energy of skill {found} is not finite", code="energy", found=values[found])
    if temperature == 0:
        shares = np.zeros(values.size)
        shares[np.argmin(values)] = 1
        return shares
    with np.errstate(over="ignore"):  # a difference too large for a double is a share of 0
        shares = np.exp(-(values - values.min()) / temperature)
    weights: NDArray[np.float64] = shares / shares.sum()
    return weights
