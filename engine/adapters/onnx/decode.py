"""What an ONNX model gives out, read as canonical answers with an uncertainty each.

Each function takes the outputs for one picture. Numbers that are not finite make the uncertainty NaN: to the gate that
is no answer, and the score stage refuses it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.adapters.onnx.declaration import (
    BoxesSpec,
    BoxOutputs,
    ChoiceSpec,
    DenseScalarSpec,
    IndexOutput,
    MaskSpec,
    Specs,
)
from engine.adapters.onnx.pictures import Placement
from engine.domain.answers import Answer
from engine.domain.ontology import Head, Kind

Outputs = Mapping[str, NDArray[Any]]  # by name, of one picture: without the batch's axis
Told = tuple[Answer, float]

CANDIDATES = 1000  # boxes that are looked at, the best first
PEAKS = 20


class ShapeMismatch(ValueError):
    """An output has another shape than the declaration says; the message names both."""


def told(spec: Specs, head: Head, outputs: Outputs, placement: Placement) -> Told:
    """The answer of one head, as the ontology has it, for one picture, and how unsure it is. Raises ShapeMismatch."""
    match spec:
        case BoxesSpec():
            answer, uncertainty = _boxes(spec, outputs, placement)
        case MaskSpec():
            answer, uncertainty = _mask(spec, head, outputs, placement)
        case DenseScalarSpec():
            answer, uncertainty = _dense_scalar(spec, outputs, placement)
        case ChoiceSpec():
            answer, uncertainty = _choice(spec, outputs)
    if spec.uncertainty is not None and math.isfinite(uncertainty):
        uncertainty = float(np.asarray(outputs[spec.uncertainty.output], dtype=np.float64).mean())
    return answer, uncertainty


def _boxes(spec: BoxesSpec, outputs: Outputs, placement: Placement) -> Told:
    corners, scores, labels = _candidates(spec, outputs)
    finite = bool(np.isfinite(corners).all() and np.isfinite(scores).all())
    if not finite:
        return Answer(Kind.BOXES, {"objects": []}), math.nan
    if spec.coordinates == "fractions":
        corners = corners * np.array([placement.width, placement.height] * 2, dtype=np.float64)
    boxes = placement.fractions(_as_corners(corners, spec.box))
    named = np.array([0 <= label < len(spec.classes) and spec.classes[label] is not None for label in labels], bool)
    whole = ((boxes[:, 2:] - boxes[:, :2]) > 1e-5).all(1) if len(boxes) else np.zeros(0, bool)
    kept = np.flatnonzero(named & whole)
    kept = kept[np.argsort(-scores[kept], kind="stable")][:CANDIDATES]
    boxes, scores, labels = boxes[kept], scores[kept], labels[kept]
    names = [str(spec.classes[label]) for label in labels]
    if spec.nms is not None:
        alone = _suppressed(boxes, names, spec.nms)
        boxes, scores, names = boxes[alone], scores[alone], [names[index] for index in alone]
    objects = [
        {"id": str(number), "class": name, "box": [round(float(v), 5) for v in box], "score": round(float(score), 5)}
        for number, (name, box, score) in enumerate(zip(names, boxes, scores, strict=True))
        if score >= spec.min_score
        and round(float(box[2]), 5) > round(float(box[0]), 5)
        and round(float(box[3]), 5) > round(float(box[1]), 5)
    ]
    best = scores[:PEAKS]
    uncertainty = float((best * _binary_entropy(best)).sum() / (best.sum() + 0.1))
    return Answer(Kind.BOXES, {"objects": objects[: spec.max_boxes]}), uncertainty


def _candidates(
    spec: BoxesSpec, outputs: Outputs
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Boxes (M, 4) as they came, the probability (M,) of each for its class, and the class's index (M,)."""
    classes = len(spec.classes)
    if isinstance(spec.outputs, BoxOutputs):
        boxes = np.asarray(outputs[spec.outputs.boxes], dtype=np.float64)
        given = np.asarray(outputs[spec.outputs.scores], dtype=np.float64)
        _demand(boxes.ndim == 2 and boxes.shape[1] == 4, spec.outputs.boxes, boxes, "(N, 4)")
        if spec.outputs.labels is not None:
            labels = np.asarray(outputs[spec.outputs.labels]).astype(np.int64)
            _demand(given.shape == boxes.shape[:1], spec.outputs.scores, given, "(N,) as the boxes")
            _demand(labels.shape == boxes.shape[:1], spec.outputs.labels, labels, "(N,) as the boxes")
            return boxes, _probability(given, spec.scores), labels
        _demand(given.shape == (len(boxes), classes), spec.outputs.scores, given, f"(N, {classes}) as the classes")
        scores = _probability(given, spec.scores)
    else:
        packed = np.asarray(outputs[spec.outputs.packed], dtype=np.float64)
        packed = packed.T if packed.ndim == 2 and spec.outputs.order == "columns" else packed
        first = 5 if spec.outputs.objectness else 4
        wanted = f"(N, {first} + {classes}), by {spec.outputs.order}"
        _demand(packed.ndim == 2 and packed.shape[1] == first + classes, spec.outputs.packed, packed, wanted)
        boxes, scores = packed[:, :4], _probability(packed[:, first:], spec.scores)
        if spec.outputs.objectness:
            scores = scores * _probability(packed[:, 4:5], spec.scores)
    if not len(boxes):
        return boxes, np.zeros(0), np.zeros(0, np.int64)
    best = scores.argmax(1)
    return boxes, scores[np.arange(len(boxes)), best], best.astype(np.int64)


def _as_corners(boxes: NDArray[np.float64], form: str) -> NDArray[np.float64]:
    if form == "xyxy":
        return boxes
    start, size = boxes[:, :2], boxes[:, 2:]
    if form == "cxcywh":
        start = start - size / 2
    return np.concatenate((start, start + size), axis=1)


def _suppressed(boxes: NDArray[np.float64], names: Sequence[str], most: float) -> list[int]:
    """Greedy non-maximum suppression, class by class, of boxes that are sorted by score: the places that stay."""
    kept: list[int] = []
    left = np.ones(len(boxes), bool)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    codes = np.unique(names, return_inverse=True)[1] if names else np.zeros(0, np.int64)
    for place in range(len(boxes)):
        if not left[place]:
            continue
        kept.append(place)
        low = np.maximum(boxes[place, :2], boxes[:, :2])
        high = np.minimum(boxes[place, 2:], boxes[:, 2:])
        inside = (high - low).clip(0).prod(1)
        left &= (codes != codes[place]) | (inside / (area + area[place] - inside) <= most)
    return kept


def _mask(spec: MaskSpec, head: Head, outputs: Outputs, placement: Placement) -> Told:
    # By the model's index, the canonical one: 0 is background, i + 1 the ontology's class i.
    classes = np.array([0 if name is None else head.classes.index(name) + 1 for name in spec.classes], dtype=np.uint8)
    if isinstance(spec.outputs, IndexOutput):
        cells = np.asarray(outputs[spec.outputs.indices])
        cells = cells[0] if cells.ndim == 3 and len(cells) == 1 else cells
        _demand(cells.ndim == 2, spec.outputs.indices, cells, "(h, w) or (1, h, w)")
        indices = placement.crop(cells).astype(np.int64)
        if indices.size and (indices.min() < 0 or indices.max() >= len(classes)):
            raise ShapeMismatch(
                f"output {spec.outputs.indices!r} names class {int(indices.max())}, {len(classes)} are declared"
            )
        return _mask_answer(classes[indices]), 0.0
    scores = np.asarray(outputs[spec.outputs.scores], dtype=np.float64)
    _demand(scores.ndim == 3 and len(scores) == len(classes), spec.outputs.scores, scores, f"({len(classes)}, h, w)")
    scores = np.asarray(placement.crop(scores), dtype=np.float64)
    if not np.isfinite(scores).all():
        return _mask_answer(np.zeros(scores.shape[1:], np.uint8)), math.nan
    if len(classes) == 1:
        probability = _probability(scores[0], spec.scores)
        cells = np.where(probability > spec.threshold, classes[0], 0).astype(np.uint8)
        return _mask_answer(cells), float(_binary_entropy(probability).mean())
    probability = _distribution(scores, spec.scores)
    return _mask_answer(classes[scores.argmax(0)]), float(_entropy(probability).mean())


def _mask_answer(cells: NDArray[np.uint8]) -> Answer:
    flat = cells.ravel()
    starts = np.flatnonzero(np.concatenate(([True], flat[1:] != flat[:-1])))
    lengths = np.diff(np.concatenate((starts, [len(flat)])))
    runs = [[int(flat[start]), int(length)] for start, length in zip(starts, lengths, strict=True)]
    return Answer(Kind.MASK, {"size": [int(side) for side in cells.shape], "runs": runs})


def _dense_scalar(spec: DenseScalarSpec, outputs: Outputs, placement: Placement) -> Told:
    cells = np.asarray(outputs[spec.outputs.values], dtype=np.float64)
    cells = cells[0] if cells.ndim == 3 and len(cells) == 1 else cells
    _demand(cells.ndim == 2, spec.outputs.values, cells, "(h, w) or (1, h, w)")
    values = np.asarray(placement.crop(cells), dtype=np.float64) * spec.scale + spec.offset
    if spec.inverse:
        with np.errstate(divide="ignore"):
            values = 1.0 / values
        values[np.isinf(values)] = np.nan  # infinitely far: there is no value
    finite = bool(np.isfinite(values).any())
    buffer = io.BytesIO()
    np.save(buffer, values.clip(-65000.0, 65000.0).astype(np.float16), allow_pickle=False)
    answer = Answer(Kind.DENSE_SCALAR, {"size": [int(side) for side in values.shape]}, buffer.getvalue())
    return answer, 0.0 if finite else math.nan


def _choice(spec: ChoiceSpec, outputs: Outputs) -> Told:
    given = np.asarray(outputs[spec.outputs.scores], dtype=np.float64)
    _demand(given.shape == (len(spec.classes),), spec.outputs.scores, given, f"({len(spec.classes)},)")
    names = list(dict.fromkeys(name for name in spec.classes if name is not None))
    if not np.isfinite(given).all():
        return Answer(Kind.CHOICE, {"choice": names[0]}), math.nan
    shares = _distribution(given, spec.scores)
    by_name = {name: float(shares[[c == name for c in spec.classes]].sum()) for name in names}
    total = sum(by_name.values()) or 1.0
    by_name = {name: share / total for name, share in by_name.items()}
    best = max(names, key=by_name.__getitem__)
    value = {
        "choice": best,
        "score": round(by_name[best], 5),
        "probabilities": {name: round(share, 5) for name, share in by_name.items()},
    }
    return Answer(Kind.CHOICE, value), float(_entropy(np.array(list(by_name.values()))))


def _demand(right: bool, name: str, array: NDArray[Any], wanted: str) -> None:
    if not right:
        raise ShapeMismatch(f"output {name!r} has the shape {array.shape} for one picture; declared was {wanted}")


def _probability(scores: NDArray[np.float64], form: str) -> NDArray[np.float64]:
    """Of each score by itself, in [0, 1]."""
    if form == "logits":
        return 1.0 / (1.0 + np.exp(-scores.clip(-60.0, 60.0)))
    return scores.clip(0.0, 1.0)


def _distribution(scores: NDArray[np.float64], form: str) -> NDArray[np.float64]:
    """Over the first axis: sums to 1."""
    if form == "logits":
        scores = np.exp(scores - scores.max(0))
    scores = scores.clip(1e-12)
    share: NDArray[np.float64] = scores / scores.sum(0)
    return share


def _entropy(share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over the first axis, in nats."""
    entropy: NDArray[np.float64] = -(share * np.log(share.clip(1e-12))).sum(0)
    return entropy


def _binary_entropy(share: NDArray[np.float64]) -> NDArray[np.float64]:
    inner = share.clip(1e-12, 1 - 1e-12)
    entropy: NDArray[np.float64] = -(inner * np.log(inner) + (1 - inner) * np.log(1 - inner))
    return entropy
