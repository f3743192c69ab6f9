"""Polylines: F1 of the lines that two people have in common, one to one, of the same class and close all along.

Two lines are close when the mean distance from points along each to the other one, taken both ways, is at most
`agreement_distance` (a head's option) of the picture's width. Looser than the overlap that a model is judged by: two
hands are off by their sum. The picture's aspect is that of the head's option `canvas` [height, width].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.domain.answers import Answer
from engine.domain.ontology import Head
from engine.evidence.subject_statistics.polylines import CANVAS, matching

DISTANCE = 0.02
SAMPLES = 32


def agreement(head: Head, first: Answer, second: Answer) -> float:
    """In [0, 1]; 1 where both say that there is no line."""
    limit = float(head.options.get("agreement_distance", DISTANCE))
    height, width = head.options.get("canvas", CANVAS)
    shared = said = 0
    for name in head.classes:
        left, right = _lines(first, name, height / width), _lines(second, name, height / width)
        near = np.asarray([[distance(a, b) <= limit for b in right] for a in left], dtype=bool)
        shared += matching(near.reshape(len(left), len(right)))
        said += len(left) + len(right)
    return 2 * shared / said if said else 1.0


def distance(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """The larger of the two mean distances between lines of points (n, 2) and (m, 2), from points spread along each."""
    return max(_one_way(first, second), _one_way(second, first))


def _one_way(line: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    steps = np.linalg.norm(np.diff(line, axis=0), axis=1)
    at = np.concatenate([[0.0], np.cumsum(steps)])
    spread = np.linspace(0.0, at[-1], SAMPLES)
    points = np.stack([np.interp(spread, at, line[:, axis]) for axis in (0, 1)], axis=1)
    starts, along = other[:-1], np.diff(other, axis=0)
    length = (along**2).sum(axis=1)
    share = ((points[:, None, :] - starts) * along).sum(axis=2) / np.where(length > 0, length, 1.0)
    nearest = starts + np.clip(share, 0.0, 1.0)[..., None] * along
    return float(np.linalg.norm(points[:, None, :] - nearest, axis=2).min(axis=1).mean())


def _lines(answer: Answer, name: str, aspect: float) -> list[NDArray[np.float64]]:
    def scaled(points: Any) -> NDArray[np.float64]:
        return np.asarray(points, dtype=np.float64) * (1.0, aspect)

    return [scaled(line["points"]) for line in answer.value["lines"] if line["class"] == name]
