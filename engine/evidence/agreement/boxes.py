"""Boxes: F1 of the boxes that two people have in common, one to one, of the same class and at IoU 0.5 or more."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.domain.answers import Answer
from engine.domain.ontology import Head
from engine.evidence.subject_statistics.boxes import box_iou
from engine.evidence.subject_statistics.polylines import matching

IOU = 0.5
IGNORED = 0.5
"""A box of which the other person ignores this share counts neither for nor against."""


def agreement(head: Head, first: Answer, second: Answer) -> float:
    """In [0, 1]; 1 where both say that there is nothing."""
    shared = said = 0
    for name in head.classes:
        left, right = _boxes(first, name), _boxes(second, name)
        allowed = box_iou(left, right) >= IOU
        shared += matching(allowed)
        said += _counted(left, allowed.any(axis=1), _ignored(second))
        said += _counted(right, allowed.any(axis=0), _ignored(first))
    return 2 * shared / said if said else 1.0


def _counted(boxes: NDArray[np.float64], matched: Any, ignored: NDArray[np.float64]) -> int:
    """How many of these boxes count: all but those that only an ignored region of the other person lies over."""
    if not len(ignored) or not len(boxes):
        return len(boxes)
    low = np.maximum(boxes[:, None, :2], ignored[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], ignored[None, :, 2:])
    size = np.clip(high - low, 0, None)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    covered = (size[..., 0] * size[..., 1]).max(axis=1) >= IGNORED * area
    return int((matched | ~covered).sum())


def _boxes(answer: Answer, name: str) -> NDArray[np.float64]:
    return np.asarray([o["box"] for o in answer.value["objects"] if o["class"] == name], dtype=np.float64).reshape(
        -1, 4
    )


def _ignored(answer: Answer) -> NDArray[np.float64]:
    return np.asarray(answer.value.get("ignore") or [], dtype=np.float64).reshape(-1, 4)
