"""Masks, dense scalars, dense vectors and choices."""

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from engine.domain.answers import Answer, encode_runs
from engine.domain.ontology import Head, Kind, LabelTool
from engine.evidence.statistic import metric, statistic
from engine.evidence.subject_statistics.dense_scalar import dense_array

AREA = Head("area", Kind.MASK, ("road", "kerb"))
DEPTH = Head("depth", Kind.DENSE_SCALAR, label_tool=LabelTool.MACHINE, unit="m")
NORMALS = Head("normals", Kind.DENSE_VECTOR, label_tool=LabelTool.MACHINE)
SIGN = Head("sign", Kind.CHOICE, ("stop", "yield"))

small_masks = arrays(np.uint8, (3, 4), elements=st.sampled_from([0, 1, 2, 255]))


def mask(cells: Any) -> Answer:
    array = np.asarray(cells, dtype=np.uint8)
    return Answer(Kind.MASK, {"size": list(array.shape), "runs": encode_runs(array.ravel().tolist())})


def dense(kind: Kind, array: Any) -> Answer:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array, dtype=np.float16))
    return Answer(kind, {"size": list(np.shape(array)[:2])}, buffer.getvalue())


@given(st.lists(st.tuples(small_masks, small_masks), min_size=1, max_size=4))
def test_iou_is_what_counting_pixel_by_pixel_gives(pairs: list[tuple[np.ndarray, np.ndarray]]) -> None:
    ratios = []
    for index in (1, 2):
        shared = union = true = 0
        for said, truth in pairs:
            for p, t in zip(said.ravel(), truth.ravel(), strict=True):
                if t != 255:
                    shared += p == index == t
                    union += index in (p, t)
                    true += t == index
        if true:
            ratios.append(shared / union)
    found = metric(AREA, [statistic(AREA, mask(said), mask(truth)) for said, truth in pairs])
    assert found == pytest.approx(np.mean(ratios) if ratios else np.nan, nan_ok=True)


def test_a_mask_of_another_size_is_read_at_the_nearest_pixel() -> None:
    truth = np.repeat(np.repeat([[1, 0], [2, 1]], 4, axis=0), 6, axis=1)
    assert metric(AREA, [statistic(AREA, mask([[1, 0], [2, 1]]), mask(truth))]) == 1.0
    assert metric(AREA, [statistic(AREA, mask(truth), mask([[1, 0], [2, 1]]))]) == 1.0


def test_a_missing_mask_is_wrong_everywhere_it_counts() -> None:
    silent = statistic(AREA, None, mask([[1, 0, 255]]), ["road"])
    assert silent == {"intersection": [0, 0], "union": [2, 0], "truth": [1, 0], "missing": [1]}


def test_a_mask_class_nobody_looked_for_has_no_part() -> None:
    one = statistic(AREA, mask([[1, 2]]), mask([[1, 0]]), ["road"])
    assert (one["union"], metric(AREA, [one])) == ([1, 0], 1.0)


@given(arrays(np.float16, (3, 5), elements=st.floats(0.5, 60, width=16)), st.floats(0.5, 2))
def test_a_scaled_depth_has_that_relative_error(truth: np.ndarray, factor: float) -> None:
    found = metric(
        DEPTH, [statistic(DEPTH, dense(Kind.DENSE_SCALAR, truth * np.float16(factor)), dense(Kind.DENSE_SCALAR, truth))]
    )
    assert found == pytest.approx(abs(float(np.float16(factor)) - 1), abs=2e-3)


def test_depth_without_truth_counts_nowhere_and_without_prediction_as_wrong() -> None:
    truth = dense(Kind.DENSE_SCALAR, [[10.0, np.nan, 0.0, 20.0]])
    said = dense(Kind.DENSE_SCALAR, [[11.0, 5.0, 5.0, np.nan]])
    one = statistic(DEPTH, said, truth)
    assert one["count"] == [2]
    assert one["relative"] == pytest.approx([0.1 + 1.0])
    assert metric(DEPTH, [statistic(DEPTH, None, truth)]) == 1.0
    assert np.isnan(metric(DEPTH, [statistic(DEPTH, said, dense(Kind.DENSE_SCALAR, [[np.nan] * 4]))]))


def test_the_error_is_over_all_pixels_of_all_subjects() -> None:
    every = [
        statistic(DEPTH, dense(Kind.DENSE_SCALAR, [[12.0]]), dense(Kind.DENSE_SCALAR, [[10.0]])),
        statistic(DEPTH, dense(Kind.DENSE_SCALAR, [[10.0] * 3]), dense(Kind.DENSE_SCALAR, [[10.0] * 3])),
    ]
    assert metric(DEPTH, every) == pytest.approx(0.05)
    assert metric(DEPTH, every, [3, 1]) == pytest.approx(0.1)


def test_an_array_that_is_none_or_a_pickle_is_refused() -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="pickle"):
        dense_array(Answer(Kind.DENSE_SCALAR, {"size": [1, 1]}, buffer.getvalue()))
    with pytest.raises(ValueError, match="no array"):
        dense_array(Answer(Kind.DENSE_SCALAR, {"size": [1, 1]}))
    with pytest.raises(ValueError, match="its size says"):
        dense_array(Answer(Kind.DENSE_SCALAR, {"size": [2, 1]}, dense(Kind.DENSE_SCALAR, [[1.0]]).array))


def test_angles_are_in_degrees_and_a_missing_one_is_the_worst() -> None:
    truth = dense(Kind.DENSE_VECTOR, [[[1, 0, 0], [0, 2, 0], [0, 0, 0], [0, 0, 1]]])
    said = dense(Kind.DENSE_VECTOR, [[[1, 0, 0], [3, 3, 0], [1, 0, 0], [np.nan, 0, 0]]])
    one = statistic(NORMALS, said, truth)
    assert one["count"] == [3]
    assert one["angle"] == pytest.approx([0 + 45 + 180], abs=1e-3)
    assert metric(NORMALS, [statistic(NORMALS, None, truth)]) == 180.0
    with pytest.raises(ValueError, match="components"):
        statistic(NORMALS, dense(Kind.DENSE_VECTOR, [[[1, 0]] * 4]), truth)


def test_accuracy_is_the_share_of_right_choices() -> None:
    stop, give_way = (Answer(Kind.CHOICE, {"choice": c}) for c in SIGN.classes)
    every = [statistic(SIGN, stop, stop), statistic(SIGN, give_way, stop), statistic(SIGN, None, stop)]
    assert metric(SIGN, every) == pytest.approx(1 / 3)
    assert metric(SIGN, every, [2, 1, 1]) == pytest.approx(0.5)
