import io
from typing import Any

import numpy as np
import pytest

from engine.domain.answers import Answer, check_answer, encode_runs
from engine.domain.ontology import Head, Kind, LabelTool
from engine.evidence.dumb_baseline import constant_answer
from engine.evidence.statistic import metric, statistic

OBJECTS = Head("objects", Kind.BOXES, ("car", "cyclist"))
LANES = Head("lanes", Kind.POLYLINES, ("lane",))
AREA = Head("area", Kind.MASK, ("road",))
DEPTH = Head("depth", Kind.DENSE_SCALAR, label_tool=LabelTool.MACHINE, unit="m")
NORMALS = Head("normals", Kind.DENSE_VECTOR, label_tool=LabelTool.MACHINE)
SIGN = Head("sign", Kind.CHOICE, ("stop", "yield"))


def dense(kind: Kind, array: Any) -> Answer:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array, dtype=np.float16))
    return Answer(kind, {"size": list(np.shape(array)[:2])}, buffer.getvalue())


def scene(head: Head, generator: np.random.Generator) -> Answer:
    """A road that is always about the same, with one car mostly in the lane ahead."""
    shift = float(generator.normal(0, 0.01))
    if head.kind is Kind.BOXES:
        ahead = [0.4 + shift, 0.5, 0.6 + shift, 0.7]
        x, y = generator.uniform(0, 0.8, size=2)
        objects = [{"id": "r", "class": "cyclist", "box": [float(x), float(y), float(x) + 0.1, float(y) + 0.2]}]
        if generator.random() < 0.7:
            objects.append({"id": "a", "class": "car", "box": ahead})
        return Answer(Kind.BOXES, {"objects": objects})
    if head.kind is Kind.POLYLINES:
        lines = [[[0.1 + shift, 1.0], [0.45, 0.4]], [[0.9 + shift, 1.0], [0.55, 0.4]]]
        return Answer(
            Kind.POLYLINES, {"lines": [{"id": str(i), "class": "lane", "points": p} for i, p in enumerate(lines)]}
        )
    if head.kind is Kind.MASK:
        cells = np.zeros((36, 64), dtype=np.uint8)
        cells[int(18 + 100 * shift) :, 10:54] = 1
        cells[:2] = 255
        return Answer(Kind.MASK, {"size": [36, 64], "runs": encode_runs(cells.ravel().tolist())})
    rows = np.arange(36)[:, None].repeat(64, axis=1)
    if head.kind is Kind.DENSE_SCALAR:
        return dense(head.kind, np.where(rows < 18, np.nan, 40.0 / np.maximum(rows - 16, 1)) * (1 + shift))
    if head.kind is Kind.DENSE_VECTOR:
        up = np.stack([np.full((36, 64), shift), np.full((36, 64), -1.0), (rows < 18) * 1.0], axis=-1)
        return dense(head.kind, up)
    return Answer(Kind.CHOICE, {"choice": "stop" if generator.random() < 0.7 else "yield"})


@pytest.mark.parametrize(
    ("head", "expected", "within"),
    [
        # AP50: the constant car is right in 70% of pictures (area under its one point is 0.7), a cyclist is anywhere.
        (OBJECTS, 0.35, 0.1),
        (LANES, 0.9, 0.1),
        (AREA, 0.95, 0.05),
        (DEPTH, 0.01, 0.03),
        (NORMALS, 0.5, 0.5),
        (SIGN, 0.7, 0.1),
    ],
    ids=lambda value: value.name if isinstance(value, Head) else "",
)
def test_the_constant_answer_scores_what_the_scene_repeats(head: Head, expected: float, within: float) -> None:
    generator = np.random.default_rng(0)
    constant = constant_answer(head, [scene(head, generator) for _ in range(60)])
    check_answer(head, constant)
    fresh = [scene(head, generator) for _ in range(200)]
    found = metric(head, [statistic(head, constant, label) for label in fresh])
    assert found == pytest.approx(expected, abs=within)


@pytest.mark.parametrize("head", [OBJECTS, LANES], ids=lambda head: head.name)
def test_where_there_is_nothing_the_constant_answer_is_nothing(head: Head) -> None:
    key = "objects" if head.kind is Kind.BOXES else "lines"
    assert constant_answer(head, [Answer(head.kind, {key: []})] * 3).value[key] == []


def test_labels_without_any_truth_still_give_an_answer() -> None:
    blank = dense(Kind.DENSE_SCALAR, np.full((4, 4), np.nan))
    check_answer(DEPTH, constant_answer(DEPTH, [blank]))
    flat = dense(Kind.DENSE_VECTOR, np.zeros((4, 4, 3)))
    check_answer(NORMALS, constant_answer(NORMALS, [flat]))
    ignored = Answer(Kind.MASK, {"size": [2, 2], "runs": [[255, 4]]})
    assert constant_answer(AREA, [ignored]).value["runs"] == [[0, 45 * 80]]


def test_without_labels_there_is_no_baseline() -> None:
    with pytest.raises(ValueError, match="no training label"):
        constant_answer(AREA, [])
    with pytest.raises(ValueError, match="a label is not"):
        constant_answer(AREA, [Answer(Kind.CHOICE, {"choice": "stop"})])
