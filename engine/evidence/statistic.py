"""A subject's sufficient statistic for a head's metric, and the metric from weighted statistics.

The gate never averages per-subject metrics (AP has none): it keeps what the metric needs of each subject, and computes
the metric exactly for any weights. A subject with weight 2 is as good as the subject twice; weights may be fractions
(inverse inclusion probabilities). A missing prediction is scored as wrong, and `missing` tells how many there were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.domain.answers import Answer
from engine.domain.ontology import Head, Kind
from engine.evidence.subject_statistics import boxes, choice, dense_scalar, dense_vector, mask, polylines

Statistic = Mapping[str, Sequence[float]]

KINDS: dict[Kind, ModuleType] = {
    Kind.BOXES: boxes,
    Kind.POLYLINES: polylines,
    Kind.MASK: mask,
    Kind.DENSE_SCALAR: dense_scalar,
    Kind.DENSE_VECTOR: dense_vector,
    Kind.CHOICE: choice,
}


def statistic(
    head: Head, predicted: Answer | None, label: Answer, annotated_classes: Sequence[str] | None = None
) -> dict[str, list[float]]:
    """One subject's statistic: named lists of floats, fit for JSON and Arrow, with `missing` [0.0] or [1.0].

    `annotated_classes`: the classes that the labeler looked for; None is all of the head's.
    Raises ValueError when an answer is of another kind than the head, or can't be read.
    """
    for answer in (predicted, label):
        if answer is not None and answer.kind is not head.kind:
            raise ValueError(f"head {head.name!r} is {head.kind}, an answer is {answer.kind}")
    looked_for = [name for name in head.classes if annotated_classes is None or name in annotated_classes]
    values: dict[str, list[float]] = KINDS[head.kind].statistic(head, predicted, label, looked_for)
    return {**values, "missing": [float(predicted is None)]}


def metric(head: Head, statistics: Sequence[Statistic], weights: ArrayLike | None = None) -> float:
    """The head's metric over subjects with `weights` (N,), 1 each by default; NaN when there is nothing to measure."""
    one = np.ones(len(statistics)) if weights is None else np.asarray(weights, dtype=np.float64)
    return float(metrics(head, statistics, one[None, :])[0])


def metrics(head: Head, statistics: Sequence[Statistic], weights: ArrayLike) -> NDArray[np.float64]:
    """The head's metric for each row of `weights` (R, N): shape (R,), NaN where there is nothing to measure.

    Raises ValueError when the shapes don't fit, or a weight is negative or not finite.
    """
    rows = np.asarray(weights, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != len(statistics):
        raise ValueError(f"{len(statistics)} subjects, weights of shape {rows.shape}")
    if not np.isfinite(rows).all() or (rows < 0).any():
        raise ValueError("weights must be finite and not negative")
    if not statistics:
        return np.full(len(rows), np.nan)
    values: NDArray[np.float64] = KINDS[head.kind].metric(head, statistics, rows)
    return values


def missing(statistics: Sequence[Statistic]) -> int:
    """How many of the subjects had no prediction."""
    return int(sum(s["missing"][0] for s in statistics))
