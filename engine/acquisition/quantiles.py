"""Raw uncertainties as quantiles on a fixed reference, so that scores compare between calls and between heads.

The raw uncertainty of one head (an entropy, a Laplace scale) has its own unit, and ranks within one batch mean nothing
in the next. So each model version keeps, per head, knots of the uncertainty's empirical quantile function on a fixed
reference set; a raw score then has one place in [0, 1] for as long as the version lives. Between knots the empirical
distribution is linear (Hyndman & Fan, "Sample Quantiles in Statistical Packages", 1996, type 7); a score that sits on
a plateau of equal knots gets the plateau's middle (the mid-distribution function of Parzen, 2004).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

KNOTS = 201


def reference_knots(scores: ArrayLike, count: int = KNOTS) -> tuple[float, ...]:
    """Knots of the quantile function of `scores`, shape (n,), ascending; `count` (at least 101) of them.

    Raises ValueError when there are no scores, or one isn't finite.
    """
    values = np.asarray(scores, dtype=np.float64).ravel()
    if count < 101:
        raise ValueError(f"{count} knots are too coarse: take at least 101")
    if values.size == 0:
        raise ValueError("a reference needs at least one score")
    if not np.isfinite(values).all():
        raise ValueError(f"{int((~np.isfinite(values)).sum())} of {values.size} reference scores are not finite")
    knots = np.quantile(values, np.linspace(0.0, 1.0, count))
    # Interpolation between equal neighbours can step back by one bit.
    return tuple(float(knot) for knot in np.maximum.accumulate(knots))


def score_quantiles(scores: ArrayLike, knots: ArrayLike) -> NDArray[np.float64]:
    """The place of each raw score on the reference: shape (n,), in [0, 1], non-decreasing in the score.

    Below the first knot is 0, above the last is 1; on a constant reference an equal score is 0.5.
    Raises ValueError for a NaN score or for knots that aren't finite and ascending.
    """
    raw = np.asarray(scores, dtype=np.float64).ravel()
    reference = np.asarray(knots, dtype=np.float64).ravel()
    if reference.size < 2 or not np.isfinite(reference).all() or (np.diff(reference) < 0).any():
        raise ValueError("knots must be two or more finite, ascending numbers")
    if np.isnan(raw).any():
        raise ValueError(f"{int(np.isnan(raw).sum())} of {raw.size} uncertainties are NaN: a broken score has no rank")
    left = np.searchsorted(reference, raw, side="left")
    right = np.searchsorted(reference, raw, side="right")
    last = reference.size - 1
    on_knot = right > left
    below = np.clip(left - 1, 0, last)
    above = np.clip(left, 0, last)
    gap = reference[above] - reference[below]
    inside = ~on_knot & (left > 0) & (left <= last)
    offset = np.divide(raw - reference[below], gap, out=np.zeros_like(raw), where=inside & (gap > 0))
    place = np.where(on_knot, (left + right - 1) / 2.0, below + offset)
    place = np.where(~on_knot & (left == 0), 0.0, place)
    place = np.where(~on_knot & (left > last), float(last), place)
    return np.clip(place / last, 0.0, 1.0)


def score_quantile(score: float, knots: ArrayLike) -> float:
    """The place of one raw score on the reference (see score_quantiles)."""
    return float(score_quantiles([score], knots)[0])
