"""The dumb baseline: the best answer that doesn't look at the picture, from the training labels alone.

A head is worth having only if it beats this. One constant answer a head: the most usual layout of a mask, the median
depth of each row, the boxes and lines that fit most training pictures. It is fitted on training labels, so on the
golden set it is honest.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.domain.answers import IGNORE, Answer, encode_runs
from engine.domain.ontology import Head, Kind
from engine.evidence.subject_statistics import boxes, polylines
from engine.evidence.subject_statistics.dense_scalar import dense_array
from engine.evidence.subject_statistics.mask import mask_cells, nearest

GRID = (45, 80)  # rows, columns: coarse, as a layout is
SAMPLES = 200  # boxes or lines of a class that stand as candidates
PER_CLASS = 3  # constant boxes or lines of a class
EVERY_LINE = 0.25  # a line is laid down only if it fits at least this share of the pictures


def constant_answer(head: Head, labels: Sequence[Answer]) -> Answer:
    """The one answer for every picture, fitted to training `labels` of the head (subsample thousands beforehand).

    Raises ValueError when there are no labels, or one is of another kind.
    """
    if not labels:
        raise ValueError(f"head {head.name!r} has no training label, so it has no dumb baseline")
    if any(label.kind is not head.kind for label in labels):
        raise ValueError(f"head {head.name!r} is {head.kind}, a label is not")
    return _FITS[head.kind](head, labels)


def _boxes(head: Head, labels: Sequence[Answer]) -> Answer:
    """Per class the boxes that fit most training pictures, each scored by the share of pictures that it alone fits."""
    objects: list[dict[str, Any]] = []
    for name in head.classes:
        pictures = [[list(o["box"]) for o in label.value["objects"] if o["class"] == name] for label in labels]

        def overlaps(first: Sequence[Any], second: Sequence[Any]) -> NDArray[np.float64]:
            return boxes.box_iou(np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64))

        for box, share in _layout(pictures, overlaps):
            objects.append({"id": f"constant-{len(objects)}", "class": name, "box": list(box), "score": share})
    return Answer(Kind.BOXES, {"objects": objects})


def _polylines(head: Head, labels: Sequence[Answer]) -> Answer:
    """Per class the lines that fit at least a quarter of the training pictures: fewer would cost more F1 than they
    give.
    """
    lines: list[dict[str, Any]] = []
    for name in head.classes:
        pictures = [[line["points"] for line in label.value["lines"] if line["class"] == name] for label in labels]

        def overlaps(first: Sequence[Any], second: Sequence[Any]) -> NDArray[np.float64]:
            return polylines.line_iou(head, first, second)

        for points, share in _layout(pictures, overlaps):
            if share >= EVERY_LINE:
                line = [list(point) for point in points]
                lines.append({"id": f"constant-{len(lines)}", "class": name, "points": line, "score": 1.0})
    return Answer(Kind.POLYLINES, {"lines": lines})


def _layout(
    pictures: Sequence[Sequence[Any]], overlaps: Callable[[Sequence[Any], Sequence[Any]], NDArray[np.float64]]
) -> list[tuple[Any, float]]:
    """Greedy cover: candidates that fit (IoU >= 0.5) most objects not fitted yet, each with its share of the
    pictures.
    """
    everything = [(index, item) for index, shown in enumerate(pictures) for item in shown]
    if not everything:
        return []
    step = max(1, -(-len(everything) // SAMPLES))
    sample = everything[::step]
    owner = np.asarray([index for index, _ in sample])
    items = [item for _, item in sample]
    fits = overlaps(items, items) >= 0.5
    free = np.ones(len(sample), dtype=bool)
    chosen: list[tuple[Any, float]] = []
    for _ in range(PER_CLASS):
        gains = (fits & free).sum(axis=1)
        best = int(np.argmax(gains))
        if not gains[best]:
            break
        covered = fits[best] & free
        # Of the pictures in the sample, scaled down to all pictures, which include those without such an object.
        share = len(set(owner[covered])) / len(set(owner)) * sum(bool(shown) for shown in pictures) / len(pictures)
        chosen.append((sample[best][1], float(share)))
        free &= ~covered
    return chosen


def _mask(head: Head, labels: Sequence[Answer]) -> Answer:
    """Per cell of a coarse grid the most frequent class, background included, ignored pixels left out."""
    votes = np.zeros((len(head.classes) + 1, *GRID))
    for label in labels:
        cells = nearest(mask_cells(label), GRID)
        for index in range(len(votes)):
            votes[index] += cells == index
    winner = votes.argmax(axis=0).astype(np.uint8)
    assert IGNORE not in winner
    return Answer(Kind.MASK, {"size": list(GRID), "runs": encode_runs(winner.ravel().tolist())})


def _dense_scalar(head: Head, labels: Sequence[Answer]) -> Answer:
    """The median of each of the grid's rows over the training pictures; the median of all where a row never had
    truth.
    """
    stack = np.stack([nearest(_known(label, scalar=True), GRID) for label in labels]).astype(np.float64)
    known = stack[np.isfinite(stack)]
    overall = float(np.median(known)) if known.size else 0.0
    rows = []
    for row in range(GRID[0]):
        values = stack[:, row][np.isfinite(stack[:, row])]
        rows.append(float(np.median(values)) if values.size else overall)
    return _dense(Kind.DENSE_SCALAR, np.repeat(np.asarray(rows)[:, None], GRID[1], axis=1))


def _dense_vector(head: Head, labels: Sequence[Answer]) -> Answer:
    """The mean direction of each of the grid's rows; where it is not to be had, the mean of all."""
    stack = np.stack([nearest(_known(label, scalar=False), GRID) for label in labels]).astype(np.float64)
    length = np.linalg.norm(stack, axis=-1, keepdims=True)
    usable = np.isfinite(length) & (length > 0)
    unit = np.divide(stack, length, out=np.zeros_like(stack), where=usable)
    rows = unit.sum(axis=(0, 2))  # (rows, C)
    rows = np.where(np.linalg.norm(rows, axis=-1, keepdims=True) > 1e-9, rows, rows.sum(axis=0))
    sizes = np.linalg.norm(rows, axis=-1, keepdims=True)
    rows = np.divide(rows, sizes, out=np.zeros_like(rows), where=sizes > 0)
    return _dense(Kind.DENSE_VECTOR, np.repeat(rows[:, None, :], GRID[1], axis=1))


def _choice(head: Head, labels: Sequence[Answer]) -> Answer:
    counts: Mapping[str, int] = Counter(label.value["choice"] for label in labels)
    best = max(head.classes, key=lambda name: counts.get(name, 0))
    return Answer(Kind.CHOICE, {"choice": best, "score": counts.get(best, 0) / len(labels)})


def _known(label: Answer, *, scalar: bool) -> NDArray[np.float64]:
    array = dense_array(label)
    return np.where(array > 0, array, np.nan) if scalar else array


def _dense(kind: Kind, array: NDArray[np.float64]) -> Answer:
    buffer = io.BytesIO()
    np.save(buffer, array.astype(np.float16), allow_pickle=False)
    return Answer(kind, {"size": list(GRID)}, buffer.getvalue())


_FITS: dict[Kind, Callable[[Head, Sequence[Answer]], Answer]] = {
    Kind.BOXES: _boxes,
    Kind.POLYLINES: _polylines,
    Kind.MASK: _mask,
    Kind.DENSE_SCALAR: _dense_scalar,
    Kind.DENSE_VECTOR: _dense_vector,
    Kind.CHOICE: _choice,
}
