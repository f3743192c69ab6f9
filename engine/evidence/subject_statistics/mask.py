"""Masks: intersection over union over all subjects, mean over classes.

Everingham et al., "The PASCAL Visual Object Classes Challenge" (2010), section 4.2: pixels are summed over the set
before the division. Background has no IoU of its own, ignored pixels (255) count on no side. A class counts when some
subject shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.domain.answers import IGNORE, Answer, decode_runs
from engine.domain.ontology import Head

Number = TypeVar("Number", bound=np.generic)


def statistic(
    head: Head, predicted: Answer | None, label: Answer, annotated_classes: Sequence[str]
) -> dict[str, list[float]]:
    """`intersection`, `union`, `truth`: pixels of the label's size, one number a class; 0 for a class not annotated.

    A prediction of another size is read at the nearest pixel. What it says where it ignores is background.
    No answer: nothing intersects and the union is all that is not ignored.
    """
    truth = mask_cells(label)
    valid = truth != IGNORE
    said = None if predicted is None else nearest(mask_cells(predicted), truth.shape)
    shared, union, size = [], [], []
    for index, name in enumerate(head.classes, start=1):
        annotated = name in annotated_classes
        true = (truth == index) & annotated
        guess = (valid if said is None else (said == index) & valid) & annotated
        shared.append(0.0 if said is None else float((true & guess).sum()))
        union.append(float((true | guess).sum()))
        size.append(float(true.sum()))
    return {"intersection": shared, "union": union, "truth": size}


def metric(
    head: Head, statistics: Sequence[Mapping[str, Sequence[float]]], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Mean IoU of each row of `weights` (R, N) over the N subjects: shape (R,), NaN where no class has truth."""
    shared = weights @ np.asarray([s["intersection"] for s in statistics], dtype=np.float64)  # (R, classes)
    union = weights @ np.asarray([s["union"] for s in statistics], dtype=np.float64)
    seen = weights @ np.asarray([s["truth"] for s in statistics], dtype=np.float64) > 0
    ratio = np.divide(shared, union, out=np.zeros_like(shared), where=seen)
    count = seen.sum(axis=1)
    mean: NDArray[np.float64] = np.divide(ratio.sum(axis=1), count, out=np.full(len(weights), np.nan), where=count > 0)
    return mean


def mask_cells(answer: Answer) -> NDArray[np.uint8]:
    """The class index of each pixel: shape (height, width). Raises AnswerError when the runs don't fill the size."""
    height, width = answer.value["size"]
    return np.frombuffer(decode_runs(answer.value["runs"], (height, width)), dtype=np.uint8).reshape(height, width)


def nearest(cells: NDArray[Number], size: tuple[int, ...]) -> NDArray[Number]:
    """`cells` (H, W, ...) read at the nearest pixel centre for `size` (height, width)."""
    if cells.shape[:2] == size[:2]:
        return cells
    rows = np.minimum((np.arange(size[0]) + 0.5) * cells.shape[0] / size[0], cells.shape[0] - 1).astype(int)
    columns = np.minimum((np.arange(size[1]) + 0.5) * cells.shape[1] / size[1], cells.shape[1] - 1).astype(int)
    picked: NDArray[Number] = cells[rows[:, None], columns[None, :]]
    return picked
