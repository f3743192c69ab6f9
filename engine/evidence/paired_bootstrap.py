"""The paired bootstrap over split groups: how sure is the difference between two models?

Subjects of one drive are alike, so drives are drawn with replacement, not subjects (the cluster bootstrap: Davison &
Hinkley, "Bootstrap Methods and their Application", 1997, 3.8), and each draw is given to both models, so that what is
hard for both cancels. The interval is the expanded percentile interval (Hesterberg, "What Teachers Should Know About
the Bootstrap", 2015, arXiv:1411.5279): the plain one is too short by sqrt((n - 1) / n) and by the normal's tails in
place of Student's.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from engine.domain.ontology import Head
from engine.evidence.statistic import Statistic, metric, metrics
from engine.evidence.student_t import quantile

RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A difference with its one-sided bounds, each missed with probability alpha; positive is better.

    `first` and `second` are the two models' metrics as they are, `difference` is signed so that a better first is
    positive. `unmeasured`: the resamples in which the metric was not to be had; each stands at minus and at plus
    infinity.
    """

    first: float
    second: float
    difference: float
    low: float
    high: float
    groups: int
    subjects: int
    unmeasured: int


def multiplicities(groups: Sequence[Hashable], resamples: int, seed: int) -> NDArray[np.float64]:
    """How often each subject is in each resample: shape (resamples, subjects).

    Groups are drawn with replacement, as many as there are. They are numbered by name, so that the input's order
    doesn't matter.
    """
    names = sorted(set(groups), key=str)
    number = {name: index for index, name in enumerate(names)}
    drawn = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), size=resamples)
    return drawn[:, [number[group] for group in groups]].astype(np.float64)


def paired_difference(
    head: Head,
    first: Sequence[Statistic],
    second: Sequence[Statistic],
    groups: Sequence[Hashable],
    *,
    seed: int,
    alpha: float = 0.05,
    resamples: int = RESAMPLES,
) -> Interval:
    """How much better `first` is than `second` on the same subjects, one statistic each, in the order of `groups`.

    Raises ValueError when lengths differ or there are fewer than two groups.
    """
    count = len(set(groups))
    if not len(first) == len(second) == len(groups):
        raise ValueError(
            f"{len(first)} and {len(second)} statistics, {len(groups)} groups: they must be of the same subjects"
        )
    if count < 2:
        raise ValueError(f"{count} group has no spread to measure")
    sign = sign_of(head)
    weights = multiplicities(groups, resamples, seed)
    differences = sign * (metrics(head, first, weights) - metrics(head, second, weights))
    values = (metric(head, first), metric(head, second))
    low, high = expanded_percentiles(differences, count, alpha)
    return Interval(
        first=values[0],
        second=values[1],
        difference=sign * (values[0] - values[1]),
        low=low,
        high=high,
        groups=count,
        subjects=len(groups),
        unmeasured=int(np.isnan(differences).sum()),
    )


def sign_of(head: Head) -> float:
    """1 where a higher metric is better, -1 where a lower one is."""
    return 1.0 if head.metric is not None and head.metric.higher_is_better else -1.0


def expanded_percentiles(replicates: NDArray[np.float64], groups: int, alpha: float) -> tuple[float, float]:
    """The lower and upper bound, each missed with probability `alpha`; NaN replicates widen the interval on both
    sides.
    """
    if not 0.0 < alpha < 0.5:
        raise ValueError(f"alpha is {alpha}: give a number in (0, 0.5)")
    tail = NormalDist().cdf(-math.sqrt(groups / (groups - 1)) * quantile(1 - alpha, groups - 1))
    lower = np.sort(np.where(np.isnan(replicates), -np.inf, replicates))
    upper = np.sort(np.where(np.isnan(replicates), np.inf, replicates))
    # Whole order statistics, outwards: infinities can't be interpolated.
    place = math.floor(tail * len(replicates))
    return float(lower[place]), float(upper[len(replicates) - 1 - place])
