"""What a model, a person or a sensor says for one head of one subject, in one canonical form per kind.

Coordinates are fractions of the picture: x to the right in [0, 1] of its width, y down in [0, 1] of its height,
so that an answer holds whatever size the picture is scored or shown at. The forms of ``Answer.value``:

========== =========================================================================================
boxes       ``{"objects": [{"id", "class", "box": [x0, y0, x1, y1], "score"?, "attributes"?}], "ignore"?: [box]}``
polylines   ``{"lines": [{"id", "class", "points": [[x, y], ...], "score"?}]}``
mask        ``{"size": [height, width], "runs": [[index, length], ...]}`` row-major run lengths; index 0 is
            background, i + 1 is ``head.classes[i]``, 255 is ignore
choice      ``{"choice": class, "score"?, "probabilities"?: {class: p}}``
dense       ``{"size": [height, width]}`` and ``Answer.array``: an ``.npy`` file (no pickle) of float16, (H, W) for a
            scalar, (H, W, C) for a vector; NaN where there is none
========== =========================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from engine.domain.ontology import Head, Kind

IGNORE = 255


class AnswerError(ValueError):
    """An answer that its head can't have; the message says which part is wrong."""


@dataclass(frozen=True)
class Answer:
    """One head's answer for one subject, in the canonical form of its kind (see the module)."""

    kind: Kind
    value: Mapping[str, Any]
    array: bytes | None = None


def check_answer(head: Head, answer: Answer) -> None:
    """Raise AnswerError unless `answer` is a whole and sane answer for `head`."""
    if answer.kind is not head.kind:
        raise AnswerError(f"head {head.name!r} is {head.kind}, the answer is {answer.kind}")
    if (answer.array is not None) != (head.kind in (Kind.DENSE_SCALAR, Kind.DENSE_VECTOR)):
        raise AnswerError(f"head {head.name!r} is {head.kind}: an array belongs to dense kinds and to them only")
    check = {
        Kind.BOXES: _check_boxes,
        Kind.POLYLINES: _check_polylines,
        Kind.MASK: _check_mask,
        Kind.CHOICE: _check_choice,
        Kind.DENSE_SCALAR: _check_size,
        Kind.DENSE_VECTOR: _check_size,
    }.get(head.kind)
    if check is None:
        raise AnswerError(f"kind {head.kind} has no canonical form yet")
    check(head, answer.value)


def check_prediction(head: Head, answer: Answer) -> None:
    """Raise AnswerError unless `answer` is a whole and sane answer of a model's: check_answer, and what it says of its
    own sureness is in [0, 1]."""
    try:
        check_answer(head, answer)
        for item in [*answer.value.get("objects", ()), *answer.value.get("lines", ())]:
            if not isinstance(item.get("id"), str):
                raise AnswerError(f"head {head.name!r}: an object needs an id, a text of its own")
            _check_share(head, item.get("score", 1.0))
        if head.kind is Kind.CHOICE:
            _check_share(head, answer.value.get("score", 1.0))
            for name, share in answer.value.get("probabilities", {}).items():
                _check_class(head, name)
                _check_share(head, share)
    except (TypeError, AttributeError, KeyError) as error:
        raise AnswerError(f"head {head.name!r}: the answer is not of the form of {head.kind} ({error})") from error


def _check_share(head: Head, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise AnswerError(f"head {head.name!r}: a score or probability must be a number in [0, 1], not {value!r}")


def encode_runs(cells: Iterator[int] | list[int] | bytes) -> list[list[int]]:
    """Row-major cells (class indices) to ``[[index, length], ...]``."""
    return [[int(index), sum(1 for _ in run)] for index, run in groupby(cells)]


def decode_runs(runs: list[list[int]], size: tuple[int, int]) -> bytes:
    """``[[index, length], ...]`` to height * width row-major bytes; AnswerError when the lengths don't add up."""
    cells = b"".join(bytes((index,)) * length for index, length in runs)
    if len(cells) != size[0] * size[1]:
        raise AnswerError(f"runs cover {len(cells)} cells, the size {size[0]}x{size[1]} has {size[0] * size[1]}")
    return cells


def _check_class(head: Head, name: Any) -> None:
    if name not in head.classes:
        raise AnswerError(f"head {head.name!r} has no class {name!r}; it has {', '.join(head.classes)}")


def _fraction(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise AnswerError(f"{what} must be a finite number, not {value!r}")
    if not -1e-6 <= value <= 1 + 1e-6:
        raise AnswerError(f"{what} is {value}, outside the picture: coordinates are fractions in [0, 1]")
    return float(value)


def _check_box(box: Any, what: str) -> None:
    if not isinstance(box, list | tuple) or len(box) != 4:
        raise AnswerError(f"{what} must be [x0, y0, x1, y1]")
    x0, y0, x1, y1 = (_fraction(v, what) for v in box)
    if x1 <= x0 or y1 <= y0:
        raise AnswerError(f"{what} has no area: {list(box)}")


def _list_of(value: Mapping[str, Any], key: str) -> list[Any]:
    items = value.get(key)
    if not isinstance(items, list):
        raise AnswerError(f"the answer needs a list {key!r}, empty when there is nothing to see")
    return items


def _check_boxes(head: Head, value: Mapping[str, Any]) -> None:
    for number, item in enumerate(_list_of(value, "objects")):
        _check_class(head, item.get("class"))
        _check_box(item.get("box"), f"object {number}")
    for box in value.get("ignore", ()):
        _check_box(box, "an ignored region")


def _check_polylines(head: Head, value: Mapping[str, Any]) -> None:
    for number, item in enumerate(_list_of(value, "lines")):
        _check_class(head, item.get("class"))
        points = item.get("points")
        if not isinstance(points, list | tuple) or len(points) < 2:
            raise AnswerError(f"line {number} needs two points or more")
        for point in points:
            if not isinstance(point, list | tuple) or len(point) != 2:
                raise AnswerError(f"line {number}: a point is [x, y]")
            for coordinate in point:
                _fraction(coordinate, f"line {number}")


def _check_size(head: Head, value: Mapping[str, Any]) -> None:
    size = value.get("size")
    if (
        not isinstance(size, list | tuple)
        or len(size) != 2
        or not all(isinstance(s, int) and 0 < s <= 16384 for s in size)
    ):
        raise AnswerError(f"head {head.name!r}: size must be [height, width], each from 1 to 16384")


def _check_mask(head: Head, value: Mapping[str, Any]) -> None:
    _check_size(head, value)
    covered = 0
    for run in _list_of(value, "runs"):
        if not isinstance(run, list | tuple) or len(run) != 2 or not all(isinstance(v, int) for v in run) or run[1] < 1:
            raise AnswerError("a run is [index, length] with a length of 1 or more")
        if run[0] != IGNORE and not 0 <= run[0] <= len(head.classes):
            raise AnswerError(f"head {head.name!r} has {len(head.classes)} classes; the mask names index {run[0]}")
        covered += run[1]
    height, width = value["size"]
    if covered != height * width:
        raise AnswerError(f"runs cover {covered} cells, the size {height}x{width} has {height * width}")


def _check_choice(head: Head, value: Mapping[str, Any]) -> None:
    _check_class(head, value.get("choice"))
