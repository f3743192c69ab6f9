"""The pool's true metrics from the control arm.

Each control subject was drawn with a known probability p and stands for 1 / p of its pool. Horvitz & Thompson (1952)
divides by the pool's size and is unbiased, empty draws included; Hajek (1971) divides by the sum of 1 / p, which is
steadier and is the one that carries over to metrics that are no means (AP, IoU).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.domain.ontology import Head
from engine.evidence.paired_bootstrap import RESAMPLES, expanded_percentiles, multiplicities
from engine.evidence.statistic import Statistic, metric, metrics


@dataclass(frozen=True)
class PoolEstimate:
    """A metric on the pool with its one-sided bounds, each missed with probability alpha."""

    value: float
    low: float
    high: float
    subjects: int
    groups: int


def horvitz_thompson_mean(values: ArrayLike, probabilities: ArrayLike, pool_size: int) -> float:
    """The unbiased estimate of the mean of `values` (n,) over a pool; 0 for an empty draw, which is what makes it
    unbiased.

    Over several batches give their draws together and the sum of their pools' sizes.
    Raises ValueError for a probability outside (0, 1] or an empty pool.
    """
    if pool_size < 1:
        raise ValueError(f"a pool of {pool_size} has no mean")
    return float((np.asarray(values, dtype=np.float64) * _inverse(probabilities)).sum() / pool_size)


def hajek_mean(values: ArrayLike, probabilities: ArrayLike) -> float:
    """The ratio estimate of the mean of `values` (n,) over the pool; NaN for an empty draw."""
    weights = _inverse(probabilities)
    return (
        float((np.asarray(values, dtype=np.float64) * weights).sum() / weights.sum()) if weights.size else float("nan")
    )


def pool_metric(
    head: Head,
    statistics: Sequence[Statistic],
    probabilities: ArrayLike,
    groups: Sequence[Hashable],
    *,
    seed: int,
    alpha: float = 0.05,
    resamples: int = RESAMPLES,
) -> PoolEstimate:
    """The head's metric on the pool, from control subjects with their inclusion probabilities and split groups.

    Bounds by the bootstrap over groups. Raises ValueError when lengths differ, a probability is outside (0, 1], or
    there are fewer than two groups.
    """
    weights = _inverse(probabilities)
    if not len(statistics) == len(weights) == len(groups):
        raise ValueError(f"{len(statistics)} statistics, {len(weights)} probabilities, {len(groups)} groups")
    count = len(set(groups))
    if count < 2:
        raise ValueError(f"{count} group has no spread to measure")
    replicates = metrics(head, statistics, multiplicities(groups, resamples, seed) * weights)
    low, high = expanded_percentiles(replicates, count, alpha)
    return PoolEstimate(metric(head, statistics, weights), low, high, len(statistics), count)


def _inverse(probabilities: ArrayLike) -> NDArray[np.float64]:
    given = np.asarray(probabilities, dtype=np.float64)
    if not ((given > 0) & (given <= 1)).all():
        raise ValueError(
            "an inclusion probability is in (0, 1]; chosen subjects have none and can't stand for the pool"
        )
    weights: NDArray[np.float64] = 1.0 / given
    return weights
