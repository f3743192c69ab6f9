from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.domain.answers import Answer
from engine.domain.ontology import Head, Kind
from engine.evidence.statistic import metric, metrics, missing, statistic
from engine.evidence.subject_statistics.boxes import box_iou

HEAD = Head("objects", Kind.BOXES, ("car", "cyclist"))
GRID = 12

corners = st.tuples(st.integers(0, GRID - 1), st.integers(0, GRID - 1), st.integers(1, 6), st.integers(1, 6)).map(
    lambda c: [c[0] / GRID, c[1] / GRID, min(GRID, c[0] + c[2]) / GRID, min(GRID, c[1] + c[3]) / GRID]
)
true_objects = st.lists(st.tuples(st.sampled_from(HEAD.classes), corners), max_size=4)
said_objects = st.lists(st.tuples(st.sampled_from(HEAD.classes), corners, st.integers(0, 4)), max_size=5)
pictures = st.lists(st.tuples(true_objects, said_objects), min_size=1, max_size=5)


def answer(objects: list[Any], ignore: list[list[float]] | None = None) -> Answer:
    value: dict[str, Any] = {
        "objects": [
            {"id": str(i), "class": o[0], "box": o[1], **({"score": o[2] / 4} if len(o) == 3 else {})}
            for i, o in enumerate(objects)
        ]
    }
    if ignore is not None:
        value["ignore"] = ignore
    return Answer(Kind.BOXES, value)


def pixel_iou(first: list[float], second: list[float]) -> float:
    """By counting cells of the grid that the test's boxes stand on."""
    drawn = []
    for box in (first, second):
        x0, y0, x1, y1 = (round(v * GRID) for v in box)
        drawn.append({(x, y) for x in range(x0, x1) for y in range(y0, y1)})
    return len(drawn[0] & drawn[1]) / len(drawn[0] | drawn[1])


def brute_force_ap(scenes: list[tuple[list[Any], list[Any]]]) -> float:
    """AP50 from its definition: at each threshold match anew; integrate the best precision at that recall or more."""
    values = []
    for name in HEAD.classes:
        total = sum(1 for truth, _ in scenes for o in truth if o[0] == name)
        if not total:
            continue
        points = []
        for threshold in sorted({o[2] for _, said in scenes for o in said if o[0] == name}, reverse=True):
            right = wrong = 0
            for truth, said in scenes:
                free = sorted(o[1] for o in truth if o[0] == name)
                kept = sorted((-o[2], o[1]) for o in said if o[0] == name and o[2] >= threshold)
                for _, box in kept:
                    overlaps = [pixel_iou(box, t) for t in free]
                    if overlaps and max(overlaps) >= 0.5:
                        free.pop(overlaps.index(max(overlaps)))
                        right += 1
                    else:
                        wrong += 1
            points.append((right / total, right / (right + wrong)))
        levels = sorted({0.0} | {recall for recall, _ in points})
        values.append(
            sum(
                (high - low) * max(precision for recall, precision in points if recall >= high)
                for low, high in pairwise(levels)
            )
        )
    return float(np.mean(values)) if values else float("nan")


def statistics_of(scenes: list[tuple[list[Any], list[Any]]]) -> list[dict[str, list[float]]]:
    return [statistic(HEAD, answer(said), answer(truth)) for truth, said in scenes]


@settings(deadline=None, max_examples=120)
@given(pictures)
def test_ap_is_what_its_definition_gives(scenes: list[tuple[list[Any], list[Any]]]) -> None:
    assert metric(HEAD, statistics_of(scenes)) == pytest.approx(brute_force_ap(scenes), abs=1e-9, nan_ok=True)


@given(corners, corners)
def test_iou_is_what_counting_gives(first: list[float], second: list[float]) -> None:
    assert box_iou(np.array([first]), np.array([second]))[0, 0] == pytest.approx(pixel_iou(first, second))


@settings(deadline=None, max_examples=60)
@given(pictures, st.data())
def test_a_weight_is_as_good_as_copies_and_order_is_nothing(scenes: list[Any], data: st.DataObject) -> None:
    every = statistics_of(scenes)
    copies = data.draw(st.lists(st.integers(0, 3), min_size=len(every), max_size=len(every)))
    repeated = data.draw(st.permutations([s for s, n in zip(every, copies, strict=True) for _ in range(n)]))
    assert metric(HEAD, every, copies) == pytest.approx(metric(HEAD, repeated), abs=1e-9, nan_ok=True)


def test_a_perfect_detector_has_one_and_a_blind_one_zero() -> None:
    truth = [("car", [0.1, 0.1, 0.3, 0.3]), ("cyclist", [0.5, 0.5, 0.6, 0.8])]
    assert metric(HEAD, [statistic(HEAD, answer(truth), answer(truth))]) == 1.0
    assert metric(HEAD, [statistic(HEAD, answer([]), answer(truth))]) == 0.0
    assert np.isnan(metric(HEAD, [statistic(HEAD, answer(truth), answer([]))]))


def test_no_prediction_is_wrong_even_where_there_is_nothing_to_see() -> None:
    car = [("car", [0.1, 0.1, 0.3, 0.3], 4)]
    seen = statistic(HEAD, answer(car), answer([car[0][:2]]))
    silent = statistic(HEAD, None, answer([]))
    assert metric(HEAD, [seen, statistic(HEAD, answer([]), answer([]))]) == 1.0
    assert metric(HEAD, [seen, silent]) == 0.5
    assert missing([seen, silent]) == 1


def test_a_class_nobody_looked_for_counts_on_neither_side() -> None:
    said = [("car", [0.1, 0.1, 0.3, 0.3], 4), ("cyclist", [0.5, 0.5, 0.9, 0.9], 4)]
    label = answer([("car", [0.1, 0.1, 0.3, 0.3])])
    assert statistic(HEAD, answer(said), label, ["car"])["score"] == [1.0]
    assert statistic(HEAD, answer(said), label)["tp"] == [1.0, 0.0]
    assert statistic(HEAD, None, label, ["car"])["class"] == [0.0]


def test_a_detection_in_an_ignored_region_is_nobodys_mistake() -> None:
    crowd = [[0.5, 0.5, 1.0, 1.0]]
    inside, half, outside = [0.6, 0.6, 0.7, 0.7], [0.45, 0.6, 0.55, 0.7], [0.1, 0.1, 0.2, 0.2]
    said = answer([("car", box, 3) for box in (inside, half, outside)])
    assert statistic(HEAD, said, answer([], ignore=crowd))["tp"] == [0.0]
    # A truth inside the region is still found.
    assert sorted(statistic(HEAD, said, answer([("car", inside)], ignore=crowd))["tp"]) == [0.0, 1.0]


def test_a_broken_score_and_a_foreign_answer_are_refused() -> None:
    broken = Answer(Kind.BOXES, {"objects": [{"class": "car", "box": [0, 0, 1, 1], "score": float("nan")}]})
    with pytest.raises(ValueError, match="score nan"):
        statistic(HEAD, broken, answer([]))
    with pytest.raises(ValueError, match="an answer is choice"):
        statistic(HEAD, Answer(Kind.CHOICE, {"choice": "car"}), answer([]))
    with pytest.raises(ValueError, match="weights of shape"):
        metrics(HEAD, statistics_of([([], [])]), np.ones((1, 2)))
    with pytest.raises(ValueError, match="not negative"):
        metric(HEAD, statistics_of([([], [])]), [-1.0])
    assert np.isnan(metric(HEAD, []))
