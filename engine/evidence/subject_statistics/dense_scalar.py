"""Dense scalars: mean absolute relative error.

Eigen, Puhrsch & Fergus, "Depth Map Prediction from a Single Image using a Multi-Scale Deep Network" (arXiv:1406.2283),
"Abs Relative difference" over all pixels of the set.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.domain.answers import Answer
from engine.domain.ontology import Head
from engine.evidence.subject_statistics.mask import nearest


def statistic(
    head: Head, predicted: Answer | None, label: Answer, annotated_classes: Sequence[str]
) -> dict[str, list[float]]:
    """`relative` (sum of |p - t| / t) and `count`, over pixels whose truth is above 0.

    A pixel without truth (NaN, or not above 0) counts nowhere. One with truth where the prediction isn't finite, or is
    missing altogether, is as wrong as saying 0. A prediction of another size is read at the nearest pixel.
    """
    truth = dense_array(label)
    known = np.isfinite(truth) & (truth > 0)
    true = truth[known]
    said = np.zeros_like(true) if predicted is None else nearest(dense_array(predicted), truth.shape)[known]
    said = np.where(np.isfinite(said), said, 0.0)
    error = np.abs(said - true)
    return {
        "relative": [float((error / true).sum())],
        "count": [float(true.size)],
    }


def metric(
    head: Head, statistics: Sequence[Mapping[str, Sequence[float]]], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """AbsRel of each row of `weights` (R, N) over the N subjects: shape (R,), NaN where no pixel has truth."""
    return ratio("relative", statistics, weights)


def ratio(
    above: str, statistics: Sequence[Mapping[str, Sequence[float]]], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The weighted sum of `above` over that of `count`: shape (R,), NaN where nothing was counted."""
    sums = weights @ np.asarray([[s[above][0], s["count"][0]] for s in statistics], dtype=np.float64)
    quotient: NDArray[np.float64] = np.divide(
        sums[:, 0], sums[:, 1], out=np.full(len(weights), np.nan), where=sums[:, 1] > 0
    )
    return quotient


def dense_array(answer: Answer) -> NDArray[np.float64]:
    """The array of a dense answer, (H, W) or (H, W, C), as float64. Raises ValueError when it isn't one, or holds a
    pickle.
    """
    if answer.array is None:
        raise ValueError(f"a {answer.kind} answer has no array")
    array = np.load(io.BytesIO(answer.array), allow_pickle=False)
    size = tuple(answer.value["size"])
    if array.dtype.kind != "f" or array.ndim not in (2, 3) or array.shape[:2] != size:
        raise ValueError(
            f"a {answer.kind} array is {array.dtype} {array.shape}; its size says {size}, floats are wanted"
        )
    converted: NDArray[np.float64] = array.astype(np.float64)
    return converted
