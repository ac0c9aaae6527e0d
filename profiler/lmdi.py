"""Logarithmic-mean Divisia index: how much of the change of a product each factor explains (pure).

For T = x1 * x2 * ... the change splits exactly into dT_i = Lm(T1, T2) * ln(x_i2 / x_i1), where
Lm(a, b) = (a - b) / ln(a / b) is the logarithmic mean. A factor that is itself a sum, x = sum_j y_j, splits further
into Lm(T) / Lm(x) * (y_j2 - y_j1), again exactly. B. W. Ang, "The LMDI approach to decomposition analysis", Energy
Policy 33 (2005) 867-871.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def log_mean(a: float, b: float) -> float:
    """Return the logarithmic mean of two positive numbers; a itself when they are equal."""
    if a <= 0 or b <= 0:
        raise ValueError(f"the logarithmic mean needs positive numbers, not {a} and {b}")
    ratio = a / b
    distance = ratio - 1.0
    if abs(distance) < 1e-4:
        # (a - b) / ln(a / b) loses digits as a -> b; the series of distance / log1p(distance) does not.
        return b * (1.0 + distance / 2.0 - distance**2 / 12.0 + distance**3 / 24.0)
    return (a - b) / math.log(ratio)


def factor_effect(total: tuple[float, float], factor: tuple[float, float]) -> float:
    """Return the part of total[1] - total[0] that a factor's change from factor[0] to factor[1] explains."""
    return log_mean(*total) * math.log(factor[1] / factor[0])


def component_effects(
    total: tuple[float, float],
    before: Mapping[Key, float],
    after: Mapping[Key, float],
    factor: tuple[float, float],
) -> dict[Key, float]:
    """Split a factor's effect over the components that sum to it; a component absent on one side is zero there.

    ``factor`` holds the two sums. The parts add up to ``factor_effect`` when the components add up to the factor.
    """
    weight = log_mean(*total) / log_mean(*factor)
    keys = [*before, *(key for key in after if key not in before)]
    return {key: weight * (after.get(key, 0.0) - before.get(key, 0.0)) for key in keys}
