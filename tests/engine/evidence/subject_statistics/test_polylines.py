import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from engine.domain.answers import Answer
from engine.domain.ontology import Head, Kind
from engine.evidence.statistic import metric, statistic
from engine.evidence.subject_statistics.polylines import draw_lines, line_iou, matching

HEAD = Head("lanes", Kind.POLYLINES, ("solid", "dashed"))
LEFT = [[0.2, 1.0], [0.45, 0.4]]
RIGHT = [[0.8, 1.0], [0.55, 0.4]]


def answer(*lines: Any, name: str = "solid", **more: Any) -> Answer:
    return Answer(Kind.POLYLINES, {"lines": [{"id": "x", "class": name, "points": line, **more} for line in lines]})


def shifted(line: list[list[float]], by: float) -> list[list[float]]:
    return [[x + by, y] for x, y in line]


def test_a_line_is_drawn_as_wide_as_it_should_be() -> None:
    drawn = draw_lines([[[0.5, 0.0], [0.5, 1.0]]], (40, 100), 10.0).reshape(40, 100)
    assert (drawn.sum(axis=1) == 10).all()
    assert drawn[:, 45:55].all()


def test_drawing_equals_the_distance_to_the_line() -> None:
    line = [[0.1, 0.9], [0.4, 0.3], [0.9, 0.35]]
    drawn = draw_lines([line], (36, 64), 5.0).reshape(36, 64)
    ends = np.array(line) * (64, 36)
    dense = np.concatenate([np.linspace(a, b, 2000) for a, b in itertools.pairwise(ends)])
    y, x = np.mgrid[0:36, 0:64] + 0.5
    distance = np.sqrt((x[..., None] - dense[:, 0]) ** 2 + (y[..., None] - dense[:, 1]) ** 2).min(axis=-1)
    assert (drawn[distance < 2.49] == 1).all()
    assert (drawn[distance > 2.51] == 0).all()


def test_upright_lines_overlap_by_their_width() -> None:
    first, width = [[0.5, 0.0], [0.5, 1.0]], 0.04
    head = Head("lanes", Kind.POLYLINES, ("solid",), options={"canvas": [200, 1000], "line_width": width})
    iou = line_iou(head, [first], [shifted(first, 0.01), shifted(first, 0.02), shifted(first, 0.05)])
    assert iou[0] == pytest.approx([30 / 50, 20 / 60, 0.0], abs=1e-6)


def test_lines_are_matched_one_to_one_within_their_class() -> None:
    assert statistic(HEAD, answer(RIGHT, LEFT), answer(LEFT, RIGHT)) == {
        "tp": [2],
        "fp": [0],
        "fn": [0],
        "missing": [0],
    }
    twice = statistic(HEAD, answer(LEFT, shifted(LEFT, 0.001)), answer(LEFT, RIGHT))
    assert (twice["tp"], twice["fp"], twice["fn"]) == ([1], [1], [1])
    other = statistic(HEAD, answer(LEFT, name="dashed"), answer(LEFT))
    assert (other["tp"], other["fp"], other["fn"]) == ([0], [1], [1])
    assert statistic(HEAD, answer(LEFT, name="dashed"), answer(LEFT), ["solid"])["fp"] == [0]


def test_f1_pools_the_lines_of_all_subjects() -> None:
    every = [
        statistic(HEAD, answer(LEFT), answer(LEFT, RIGHT)),
        statistic(HEAD, answer(LEFT, RIGHT), answer(RIGHT)),
        statistic(HEAD, None, answer()),
    ]
    assert metric(HEAD, every) == pytest.approx(2 * 2 / (2 * 2 + 2 + 1))
    assert metric(HEAD, every, [2, 0, 1]) == pytest.approx(2 * 2 / (2 * 2 + 1 + 2))
    assert np.isnan(metric(HEAD, [statistic(HEAD, answer(), answer())]))


def test_a_line_under_the_threshold_is_not_said() -> None:
    head = Head("lanes", Kind.POLYLINES, ("solid",), options={"score_threshold": 0.5})
    assert statistic(head, answer(LEFT, score=0.4), answer())["fp"] == [0]
    assert statistic(head, answer(LEFT, score=0.5), answer())["fp"] == [1]
    with pytest.raises(ValueError, match="score inf"):
        statistic(head, answer(LEFT, score=float("inf")), answer())


@given(arrays(bool, st.tuples(st.integers(0, 4), st.integers(0, 4))))
def test_the_matching_is_a_largest_one(allowed: np.ndarray) -> None:
    rows, columns = allowed.shape
    best = 0
    for size in range(1, min(rows, columns) + 1):
        for mine in itertools.combinations(range(rows), size):
            if any(allowed[list(mine), list(theirs)].all() for theirs in itertools.permutations(range(columns), size)):
                best = size
    assert matching(allowed) == best
