"""Outputs of models that were not made for us, read as canonical answers: every form that a declaration may name."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
from onnx_models import SQUARES
from road_scenes import DEPTH, LIGHT, ROAD

from engine.adapters.onnx.declaration import BoxesSpec, ChoiceSpec, DenseScalarSpec, MaskSpec
from engine.adapters.onnx.decode import ShapeMismatch, told
from engine.adapters.onnx.pictures import Placement
from engine.domain.answers import check_answer
from engine.domain.ontology import Head, Kind

WHOLE = Placement(100, 200, 0, 0, 200, 100)
LANES = Head("surface", Kind.MASK, ("road", "kerb"))


def objects(given: dict[str, Any], **declared: Any) -> list[dict[str, Any]]:
    spec = BoxesSpec.model_validate(
        {
            "name": "squares",
            "kind": "boxes",
            "classes": ["bright", None, "dim"],
            "outputs": {"boxes": "b", "scores": "s"},
            **declared,
        }
    )
    answer, uncertainty = told(spec, SQUARES, {k: np.asarray(v) for k, v in given.items()}, WHOLE)
    check_answer(SQUARES, answer)
    assert math.isfinite(uncertainty)
    return list(answer.value["objects"])


@pytest.mark.parametrize(
    ("form", "box"),
    [("xyxy", [20, 10, 60, 40]), ("cxcywh", [40, 25, 40, 30]), ("xywh", [20, 10, 40, 30])],
)
def test_boxes_of_every_form_are_the_same_box(form: str, box: list[int]) -> None:
    (found,) = objects({"b": [box], "s": [[0.9, 0, 0]]}, box=form)
    assert found == {"id": "0", "class": "bright", "box": [0.1, 0.1, 0.3, 0.4], "score": 0.9}
    (same,) = objects(
        {"b": [np.array(box) / [200, 100, 200, 100]], "s": [[0.9, 0, 0]]}, box=form, coordinates="fractions"
    )
    assert same == found


def test_packed_outputs_are_read_by_rows_and_by_columns() -> None:
    rows = np.array([[40, 25, 40, 30, 0.2, 0.1, 0.8], [150, 50, 20, 20, 0.01, 0.0, 0.02]])
    asked = {"box": "cxcywh"}
    by_rows = objects({"p": rows}, outputs={"packed": "p", "order": "rows"}, **asked)
    by_columns = objects({"p": rows.T}, outputs={"packed": "p", "order": "columns"}, **asked)
    assert by_rows == by_columns
    assert [(o["class"], o["box"], o["score"]) for o in by_rows] == [("dim", [0.1, 0.1, 0.3, 0.4], 0.8)]
    with_objectness = np.insert(rows, 4, 0.5, axis=1)
    (half,) = objects(
        {"p": with_objectness}, outputs={"packed": "p", "order": "rows", "objectness": True}, min_score=0.1, **asked
    )
    assert half["score"] == pytest.approx(0.4)


def test_labels_that_the_ontology_has_not_are_left_out() -> None:
    outputs = {"b": [[0, 0, 50, 50], [60, 0, 90, 50], [100, 0, 150, 50], [0, 60, 9, 70]], "s": [0.9, 0.8, 0.7, 0.6]}
    found = objects({**outputs, "l": np.int64([2, 1, 0, 77])}, outputs={"boxes": "b", "scores": "s", "labels": "l"})
    assert [(o["class"], o["score"]) for o in found] == [("dim", 0.9), ("bright", 0.7)]


def test_boxes_that_overlap_are_one_within_their_class() -> None:
    outputs = {
        "b": [[0, 0, 50, 50], [1, 0, 51, 50], [0, 1, 50, 51], [150, 0, 190, 50]],
        "s": [[0.9, 0, 0], [0.8, 0, 0], [0, 0, 0.7], [0.6, 0, 0]],
    }
    assert [(o["class"], o["score"]) for o in objects(outputs)] == [("bright", 0.9), ("dim", 0.7), ("bright", 0.6)]
    assert len(objects(outputs, nms=None)) == 4
    assert len(objects(outputs, nms=None, max_boxes=2)) == 2
    assert len(objects(outputs, min_score=0.75)) == 1


def test_boxes_are_cut_at_the_picture_and_those_without_area_are_dropped() -> None:
    outputs = {"b": [[-50, -20, 100, 300], [10, 10, 10, 40], [250, 0, 300, 50]], "s": [[0.9, 0, 0]] * 3}
    assert [o["box"] for o in objects(outputs)] == [[0.0, 0.0, 0.5, 1.0]]
    assert objects({"b": np.zeros((0, 4)), "s": np.zeros((0, 3))}) == []


def test_logits_are_brought_to_probabilities() -> None:
    (found,) = objects({"b": [[0, 0, 50, 50]], "s": [[0.0, -9, -9]]}, scores="logits")
    assert found["score"] == pytest.approx(0.5)


def test_a_nan_among_boxes_is_no_answer() -> None:
    spec = BoxesSpec.model_validate(
        {"name": "squares", "kind": "boxes", "classes": ["bright"], "outputs": {"boxes": "b", "scores": "s"}}
    )
    outputs = {"b": np.array([[0, 0, 50, 50]]), "s": np.array([[np.nan]])}
    assert math.isnan(told(spec, SQUARES, outputs, WHOLE)[1])


def mask(given: dict[str, Any], placement: Placement = WHOLE, **declared: Any) -> tuple[dict[str, Any], float]:
    spec = MaskSpec.model_validate({"name": "surface", "kind": "mask", "outputs": {"scores": "m"}, **declared})
    answer, uncertainty = told(spec, LANES, {k: np.asarray(v) for k, v in given.items()}, placement)
    check_answer(LANES, answer)
    return dict(answer.value), uncertainty


def test_a_mask_has_the_indices_of_the_ontology_whatever_the_models_are() -> None:
    scores = np.full((3, 2, 2), -9.0)
    scores[0, 0] = scores[1, 1, 0] = scores[2, 1, 1] = 9.0
    told_mask, uncertainty = mask({"m": scores}, classes=["kerb", None, "road"])
    assert told_mask == {"size": [2, 2], "runs": [[2, 2], [0, 1], [1, 1]]}
    assert uncertainty < 0.01
    by_index, nothing = mask({"m": [[0, 0], [1, 2]]}, classes=["kerb", None, "road"], outputs={"indices": "m"})
    assert (by_index, nothing) == (told_mask, 0.0)
    with pytest.raises(ShapeMismatch, match="names class 7"):
        mask({"m": [[0, 7]]}, classes=["kerb", None, "road"], outputs={"indices": "m"})


def test_a_mask_of_one_class_is_cut_at_its_threshold_and_out_of_its_letterbox() -> None:
    # The picture fills the middle half of the input's rows: of four rows of cells, the second and third.
    placement = Placement(100, 200, 0, 25, 200, 50)
    told_mask, uncertainty = mask(
        {"m": [[[1, 1], [0.9, 0.2], [0.6, 0.4], [1, 1]]]},
        placement,
        classes=["road"],
        scores="probabilities",
        threshold=0.7,
    )
    assert told_mask == {"size": [2, 2], "runs": [[1, 1], [0, 3]]}
    assert 0.3 < uncertainty < 0.7


@pytest.mark.parametrize(("inverse", "wanted"), [(False, [[3.0, 5.0]]), (True, [[1 / 3, 1 / 5]])])
def test_dense_scalars_are_scaled_and_turned_over(inverse: bool, wanted: list[list[float]]) -> None:
    spec = DenseScalarSpec.model_validate(
        {
            "name": "depth",
            "kind": "dense_scalar",
            "outputs": {"values": "d"},
            "scale": 2,
            "offset": 1,
            "inverse": inverse,
            "uncertainty": {"output": "u"},
        }
    )
    answer, uncertainty = told(spec, DEPTH, {"d": np.array([[[1.0, 2.0]]]), "u": np.array([0.25, 0.75])}, WHOLE)
    check_answer(DEPTH, answer)
    assert uncertainty == 0.5
    assert answer.array is not None
    assert np.load(io.BytesIO(answer.array)) == pytest.approx(np.array(wanted), abs=1e-3)
    assert np.load(io.BytesIO(answer.array)).dtype == np.float16


def test_a_choice_adds_up_the_models_classes_of_one_name() -> None:
    spec = ChoiceSpec.model_validate(
        {
            "name": "light",
            "kind": "choice",
            "classes": ["day", "night", None, "night"],
            "outputs": {"scores": "c"},
            "scores": "probabilities",
        }
    )
    answer, uncertainty = told(spec, LIGHT, {"c": np.array([0.3, 0.2, 0.3, 0.2])}, WHOLE)
    check_answer(LIGHT, answer)
    assert answer.value["choice"] == "night"
    assert answer.value["probabilities"] == {
        "day": pytest.approx(3 / 7, abs=1e-4),
        "night": pytest.approx(4 / 7, abs=1e-4),
    }
    assert uncertainty == pytest.approx(-(3 / 7 * math.log(3 / 7) + 4 / 7 * math.log(4 / 7)), abs=1e-6)


def test_a_shape_that_was_not_declared_is_named() -> None:
    spec = MaskSpec.model_validate({"name": "road", "kind": "mask", "classes": ["road"], "outputs": {"scores": "m"}})
    with pytest.raises(ShapeMismatch, match=r"'m' has the shape \(2, 2\)"):
        told(spec, ROAD, {"m": np.zeros((2, 2))}, WHOLE)
