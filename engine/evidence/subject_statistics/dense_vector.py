"""Dense vectors: mean angle in degrees between the predicted and the true direction.

Eigen & Fergus, "Predicting Depth, Surface Normals and Semantic Labels" (arXiv:1411.4734), over all pixels of the set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.domain.answers import Answer
from engine.domain.ontology import Head
from engine.evidence.subject_statistics.dense_scalar import dense_array, ratio
from engine.evidence.subject_statistics.mask import nearest

NO_ANSWER_DEG = 180.0


def statistic(
    head: Head, predicted: Answer | None, label: Answer, annotated_classes: Sequence[str]
) -> dict[str, list[float]]:
    """`angle` (sum, degrees) and `count`, over pixels whose truth is finite and not zero.

    Where the prediction is missing, not finite or zero, it is as wrong as can be: 180 degrees.
    Raises ValueError when the two have different numbers of components.
    """
    truth = dense_array(label)
    length = np.linalg.norm(truth, axis=-1)
    known = np.isfinite(length) & (length > 0)
    true = truth[known] / length[known][:, None]
    if predicted is None:
        return {"angle": [NO_ANSWER_DEG * len(true)], "count": [float(len(true))]}
    guess = dense_array(predicted)
    if guess.shape[2:] != truth.shape[2:]:
        raise ValueError(
            f"head {head.name!r}: the prediction has {guess.shape[2:]} components, the label {truth.shape[2:]}"
        )
    said = nearest(guess, truth.shape)[known].astype(np.float64)
    size = np.linalg.norm(said, axis=-1)
    usable = np.isfinite(size) & (size > 0)
    cosine = (said[usable] * true[usable]).sum(axis=-1) / size[usable]
    angles = np.full(len(true), NO_ANSWER_DEG)
    angles[usable] = np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0)))
    return {"angle": [float(angles.sum())], "count": [float(len(true))]}


def metric(
    head: Head, statistics: Sequence[Mapping[str, Sequence[float]]], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The mean angle of each row of `weights` (R, N) over the N subjects: shape (R,), NaN where no pixel has truth."""
    return ratio("angle", statistics, weights)
