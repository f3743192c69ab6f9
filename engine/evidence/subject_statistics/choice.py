"""Choices: accuracy, the share of subjects whose class was named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.domain.answers import Answer
from engine.domain.ontology import Head
from engine.evidence.subject_statistics.dense_scalar import ratio


def statistic(
    head: Head, predicted: Answer | None, label: Answer, annotated_classes: Sequence[str]
) -> dict[str, list[float]]:
    """`right` (1 or 0) and `count` (1). No answer is a wrong one."""
    right = predicted is not None and predicted.value["choice"] == label.value["choice"]
    return {"right": [float(right)], "count": [1.0]}


def metric(
    head: Head, statistics: Sequence[Mapping[str, Sequence[float]]], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Accuracy of each row of `weights` (R, N) over the N subjects: shape (R,), NaN where all weights are 0."""
    return ratio("right", statistics, weights)
