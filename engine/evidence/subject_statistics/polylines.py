"""Polylines: F1 of lines drawn at a lane's width, as CULane defines it.

Pan et al., "Spatial As Deep: Spatial CNN for Traffic Scene Understanding" (arXiv:1712.06080): each line is drawn 30
pixels wide in a picture of 1640 x 590, and a predicted line is right when its IoU with a true one is at least 0.5, one
to one. Here the width is scaled to the canvas (the head's options `canvas` [height, width] in pixels, 180 x 320 by
default, give it the pictures' aspect; `line_width`, a fraction of the canvas's width). Lines are drawn through their
points without a spline, matched within their class, and the matching is a largest one on the pairs with IoU >= 0.5
(augmenting paths), which is never below CULane's, where the sum of IoUs is made largest first. Lines under the option
`score_threshold` (default 0) are not said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.domain.answers import Answer
from engine.domain.ontology import Head

IOU = 0.5
CANVAS = (180, 320)
LINE_WIDTH = 30 / 1640


def statistic(
    head: Head, predicted: Answer | None, label: Answer, annotated_classes: Sequence[str]
) -> dict[str, list[float]]:
    """`tp`, `fp`, `fn`: one number each, over the annotated classes. No answer: all is missed and one line is wrong."""
    right = wrong = missed = 0
    for name in annotated_classes:
        truth = [line["points"] for line in label.value["lines"] if line["class"] == name]
        if predicted is None:
            missed += len(truth)
            continue
        said = [line["points"] for line in predicted.value["lines"] if line["class"] == name and _said(head, line)]
        matched = matching(line_iou(head, said, truth) >= IOU)
        right += matched
        wrong += len(said) - matched
        missed += len(truth) - matched
    return {"tp": [float(right)], "fp": [float(wrong + (predicted is None))], "fn": [float(missed)]}


def metric(
    head: Head, statistics: Sequence[Mapping[str, Sequence[float]]], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """F1 of each row of `weights` (R, N) over the N subjects: shape (R,), NaN where there is no line on either side."""
    sums = weights @ np.asarray([[s["tp"][0], s["fp"][0], s["fn"][0]] for s in statistics], dtype=np.float64)
    below = 2 * sums[:, 0] + sums[:, 1] + sums[:, 2]
    f1: NDArray[np.float64] = np.divide(2 * sums[:, 0], below, out=np.full(len(weights), np.nan), where=below > 0)
    return f1


def line_iou(head: Head, first: Sequence[Any], second: Sequence[Any]) -> NDArray[np.float64]:
    """IoU on the head's canvas of n and m lines, each [[x, y], ...] in fractions of the picture: shape (n, m)."""
    height, width = head.options.get("canvas", CANVAS)
    thickness = float(head.options.get("line_width", LINE_WIDTH)) * width
    left = draw_lines(first, (height, width), thickness)
    right = left if second is first else draw_lines(second, (height, width), thickness)
    shared = left @ right.T
    union = left.sum(axis=1)[:, None] + right.sum(axis=1)[None, :] - shared
    iou: NDArray[np.float64] = np.divide(shared, union, out=np.zeros(shared.shape), where=union > 0, dtype=np.float64)
    return iou


def draw_lines(lines: Sequence[Any], canvas: tuple[int, int], thickness: float) -> NDArray[np.float32]:
    """0/1 pixels of each line drawn `thickness` pixels wide with round ends: shape (n, height * width)."""
    height, width = canvas
    drawn = np.zeros((len(lines), height, width), dtype=np.float32)  # exact for counts of pixels, half the memory
    reach = max(thickness, 1.0) / 2
    for picture, line in zip(drawn, lines, strict=True):
        points = np.asarray(line, dtype=np.float64) * (width, height) - 0.5  # pixel centres stand at whole numbers
        for start, end in pairwise(points):
            low = np.clip(np.floor(np.minimum(start, end) - reach), 0, (width, height)).astype(int)
            high = np.clip(np.ceil(np.maximum(start, end) + reach) + 1, 0, (width, height)).astype(int)
            x = np.arange(low[0], high[0])[None, :]
            y = np.arange(low[1], high[1])[:, None]
            along = end - start
            length = float(along @ along)
            share = ((x - start[0]) * along[0] + (y - start[1]) * along[1]) / length if length > 0 else 0.0 * (x + y)
            share = np.clip(share, 0.0, 1.0)
            distance = (x - start[0] - share * along[0]) ** 2 + (y - start[1] - share * along[1]) ** 2
            picture[low[1] : high[1], low[0] : high[0]][distance <= reach**2] = 1.0
    return drawn.reshape(len(lines), height * width)


def matching(allowed: NDArray[np.bool_]) -> int:
    """The size of a largest one-to-one matching of rows to columns where `allowed` (n, m); Kuhn's augmenting paths."""
    owner: dict[int, int] = {}

    def place(row: int, tried: set[int]) -> bool:
        for column in np.flatnonzero(allowed[row]):
            if column in tried:
                continue
            tried.add(int(column))
            if column not in owner or place(owner[int(column)], tried):
                owner[int(column)] = row
                return True
        return False

    return sum(place(row, set()) for row in range(allowed.shape[0]))


def _said(head: Head, line: Mapping[str, Any]) -> bool:
    score = float(line.get("score", 1.0))
    if not np.isfinite(score):
        raise ValueError(f"head {head.name!r}: a line has the score {score}")
    return score >= float(head.options.get("score_threshold", 0.0))
