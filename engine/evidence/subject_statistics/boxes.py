"""Boxes: average precision at IoU 0.5, mean over classes.

Everingham et al., "The PASCAL Visual Object Classes Challenge: A Retrospective" (2015): per class, detections are
matched greedily by score to the truth of their picture, and AP is the area under the precision envelope over all
recall points. A match takes the best free truth (as COCO does). Detections of equal score form one point of the curve,
so that AP depends on no order and a weight of two is the same as having the subject twice. A class counts when some
subject shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.domain.answers import Answer
from engine.domain.ontology import Head

IOU = 0.5
_TOLERANCE = 1e-9  # half of a box is a half whatever the last bit says
IGNORED = 0.5  # share of a detection's own area inside an ignored region from which it is nobody's mistake
NO_ANSWER_SCORE = 1e30  # above any score: where there is no answer at all, the first thing said is wrong
_CHUNK_CELLS = 4_000_000


def statistic(
    head: Head, predicted: Answer | None, label: Answer, annotated_classes: Sequence[str]
) -> dict[str, list[float]]:
    """`class`, `score`, `tp` one each a detection; `n_truth` one a class, in the order of the head's classes.

    Objects of classes that weren't annotated are left out on both sides. Unmatched detections that lie in an ignored
    region are dropped. No answer: every truth is missed, and each annotated class gets a false alarm above all others.
    Raises ValueError for a score that isn't finite.
    """
    indices: list[float] = []
    scores: list[float] = []
    hits: list[float] = []
    counts = [0.0] * len(head.classes)
    ignored = _array(label.value.get("ignore", ()))
    for index, name in enumerate(head.classes):
        if name not in annotated_classes:
            continue
        truth = _array(sorted(list(o["box"]) for o in label.value["objects"] if o["class"] == name))
        counts[index] = float(len(truth))
        if predicted is None:
            found, matched = [NO_ANSWER_SCORE], [0.0]
        else:
            found, matched = _match(_detections(head, predicted.value, name), truth, ignored)
        indices += [float(index)] * len(found)
        scores += found
        hits += matched
    return {"class": indices, "score": scores, "tp": hits, "n_truth": counts}


def metric(
    head: Head, statistics: Sequence[Mapping[str, Sequence[float]]], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """AP50 of each row of `weights` (R, N) over the N subjects: shape (R,), NaN where no class has truth."""
    subject = np.repeat(np.arange(len(statistics)), [len(s["score"]) for s in statistics])
    label = np.concatenate([np.asarray(s["class"], dtype=np.int64) for s in statistics])
    score = np.concatenate([np.asarray(s["score"], dtype=np.float64) for s in statistics])
    hit = np.concatenate([np.asarray(s["tp"], dtype=np.float64) for s in statistics])
    truth = weights @ np.asarray([s["n_truth"] for s in statistics], dtype=np.float64)  # (R, classes)
    total = np.zeros(len(weights))
    for index in range(len(head.classes)):
        mine = np.flatnonzero(label == index)
        mine = mine[np.argsort(-score[mine], kind="stable")]
        total += _average_precision(score[mine], hit[mine], subject[mine], truth[:, index], weights)
    seen = (truth > 0).sum(axis=1)
    mean: NDArray[np.float64] = np.divide(total, seen, out=np.full(len(weights), np.nan), where=seen > 0)
    return mean


def box_iou(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Intersection over union of (n, 4) and (m, 4) boxes [x0, y0, x1, y1]: shape (n, m)."""
    shared = _intersection(first, second)
    union = _area(first)[:, None] + _area(second)[None, :] - shared
    iou: NDArray[np.float64] = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return iou


def _detections(head: Head, value: Mapping[str, Any], name: str) -> list[tuple[float, list[float]]]:
    found = []
    for item in value["objects"]:
        if item["class"] != name:
            continue
        score = float(item.get("score", 1.0))
        if not np.isfinite(score):
            raise ValueError(f"head {head.name!r}: a {name} has the score {score}")
        found.append((min(score, NO_ANSWER_SCORE), list(item["box"])))
    return sorted(found, key=lambda pair: (-pair[0], pair[1]))


def _match(
    detections: list[tuple[float, list[float]]], truth: NDArray[np.float64], ignored: NDArray[np.float64]
) -> tuple[list[float], list[float]]:
    boxes = _array([box for _, box in detections])
    overlap = box_iou(boxes, truth)
    area = _area(boxes)
    inside = np.divide(
        _intersection(boxes, ignored), area[:, None], out=np.zeros((len(boxes), len(ignored))), where=area[:, None] > 0
    )
    scores: list[float] = []
    hits: list[float] = []
    for row, (score, _) in enumerate(detections):
        best = int(np.argmax(overlap[row])) if len(truth) else -1
        matched = best >= 0 and overlap[row, best] >= IOU - _TOLERANCE
        if matched:
            overlap[:, best] = -1.0
        elif len(ignored) and inside[row].max() >= IGNORED - _TOLERANCE:
            continue
        scores.append(score)
        hits.append(float(matched))
    return scores, hits


def _average_precision(
    score: NDArray[np.float64],
    hit: NDArray[np.float64],
    subject: NDArray[np.int64],
    truth: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> NDArray[np.float64]:
    """AP of one class for each row of `weights` (R, N); detections (D,) come by falling score. 0 without truth."""
    result = np.zeros(len(weights))
    if not score.size:
        return result
    ends = np.flatnonzero(np.append(score[1:] != score[:-1], True))
    step = max(1, _CHUNK_CELLS // score.size)
    for start in range(0, len(weights), step):
        rows = slice(start, start + step)
        weight = weights[rows][:, subject]  # (r, D)
        said = np.cumsum(weight, axis=1)[:, ends]
        right = np.cumsum(weight * hit, axis=1)[:, ends]
        precision = np.divide(right, said, out=np.zeros_like(right), where=said > 0)
        envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        gained = np.diff(right, axis=1, prepend=0.0)
        part = truth[rows]
        result[rows] = np.divide((gained * envelope).sum(axis=1), part, out=np.zeros(len(part)), where=part > 0)
    return result


def _array(boxes: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(boxes, dtype=np.float64).reshape(-1, 4)


def _area(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    area: NDArray[np.float64] = np.clip(boxes[:, 2] - boxes[:, 0], 0, None) * np.clip(
        boxes[:, 3] - boxes[:, 1], 0, None
    )
    return area


def _intersection(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    size = np.clip(high - low, 0, None)
    shared: NDArray[np.float64] = size[..., 0] * size[..., 1]
    return shared
