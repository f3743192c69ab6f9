"""Quantiles of Student's t for whole degrees of freedom.

Abramowitz & Stegun, "Handbook of Mathematical Functions" (1964), 26.7.3 and 26.7.4: the distribution function is a
finite sum for whole degrees of freedom; its inverse is found by bisection.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_NORMAL_FROM = 2000  # from here on the two agree to 4 digits


def distribution(t: float, degrees_of_freedom: int) -> float:
    """P(T <= t). Raises ValueError without a degree of freedom."""
    if degrees_of_freedom < 1:
        raise ValueError(f"Student's t needs at least one degree of freedom, not {degrees_of_freedom}")
    theta = math.atan2(t, math.sqrt(degrees_of_freedom))
    cosine, sine = math.cos(theta), math.sin(theta)
    odd = degrees_of_freedom % 2 == 1
    term = cosine if odd else 1.0
    total = term if degrees_of_freedom > 1 else 0.0
    for step in range(3 if odd else 2, degrees_of_freedom - 1, 2):
        term *= cosine**2 * (step - 1) / step
        total += term
    inside = 2 / math.pi * (theta + sine * total) if odd else sine * total  # P(|T| <= |t|), signed
    return (1.0 + inside) / 2


@lru_cache(maxsize=256)
def quantile(probability: float, degrees_of_freedom: int) -> float:
    """The t with P(T <= t) = `probability`, to about 1e-9. Raises ValueError unless it is inside (0, 1)."""
    if not 0.0 < probability < 1.0:
        raise ValueError(f"a quantile needs a probability inside (0, 1), not {probability}")
    if degrees_of_freedom >= _NORMAL_FROM:
        return NormalDist().inv_cdf(probability)
    if probability < 0.5:
        return -quantile(1.0 - probability, degrees_of_freedom)
    low, high = 0.0, 2.0
    while distribution(high, degrees_of_freedom) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if distribution(middle, degrees_of_freedom) < probability:
            low = middle
        else:
            high = middle
        if high - low < 1e-10 * max(1.0, high):
            break
    return (low + high) / 2
