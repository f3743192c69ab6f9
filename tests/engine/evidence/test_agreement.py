"""Agreement of two people, by kind, and what several people's say comes to."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from engine.domain.answers import IGNORE, Answer, encode_runs
from engine.domain.ontology import Head, Kind, LabelTool
from engine.evidence.agreement import boxes, choice, mask, polylines
from engine.evidence.agreement.consensus import consensus
from engine.evidence.agreement.verdict import Outcome, Said, Vote, verdict

OBJECTS = Head("objects", Kind.BOXES, ("car", "truck"))
LANES = Head("lanes", Kind.POLYLINES, ("solid", "dashed"))
ROAD = Head("driveable", Kind.MASK, ("road", "kerb"))
WEATHER = Head("weather", Kind.CHOICE, ("clear", "fog"))


def drawn(*items: tuple[str, list[float]], ignore: list[list[float]] | None = None) -> Answer:
    objects = [{"id": str(n), "class": name, "box": box} for n, (name, box) in enumerate(items)]
    return Answer(Kind.BOXES, {"objects": objects, **({"ignore": ignore} if ignore else {})})


def lines(*items: tuple[str, list[list[float]]]) -> Answer:
    return Answer(
        Kind.POLYLINES, {"lines": [{"id": str(n), "class": name, "points": p} for n, (name, p) in enumerate(items)]}
    )


def cells(array: Any) -> Answer:
    picture = np.asarray(array, dtype=np.uint8)
    return Answer(Kind.MASK, {"size": list(picture.shape), "runs": encode_runs(picture.tobytes())})


def said(name: str) -> Answer:
    return Answer(Kind.CHOICE, {"choice": name})


BOX, NEAR, FAR = [0.1, 0.1, 0.5, 0.5], [0.12, 0.1, 0.52, 0.5], [0.6, 0.6, 0.9, 0.9]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (drawn(), drawn(), 1.0),
        (drawn(("car", BOX)), drawn(), 0.0),
        (drawn(("car", BOX)), drawn(("car", NEAR)), 1.0),
        (drawn(("car", BOX)), drawn(("truck", BOX)), 0.0),
        (drawn(("car", BOX)), drawn(("car", NEAR), ("car", FAR)), 2 / 3),
        (drawn(("car", BOX), ("car", NEAR)), drawn(("car", BOX)), 2 / 3),  # one to one
        (drawn(("car", BOX), ("car", FAR)), drawn(("car", BOX), ignore=[[0.5, 0.5, 1.0, 1.0]]), 1.0),
        (drawn(("car", BOX)), drawn(("car", BOX), ignore=[[0.0, 0.0, 1.0, 1.0]]), 1.0),
    ],
)
def test_boxes_agree_by_f1(first: Answer, second: Answer, expected: float) -> None:
    assert boxes.agreement(OBJECTS, first, second) == pytest.approx(expected)
    assert boxes.agreement(OBJECTS, second, first) == pytest.approx(expected)


LINE = [[0.2, 1.0], [0.4, 0.5]]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (lines(), lines(), 1.0),
        (lines(("solid", LINE)), lines(), 0.0),
        (lines(("solid", LINE)), lines(("solid", LINE[::-1])), 1.0),  # either way along
        (lines(("solid", LINE)), lines(("solid", [[0.21, 1.0], [0.31, 0.75], [0.41, 0.5]])), 1.0),
        (lines(("solid", LINE)), lines(("dashed", LINE)), 0.0),
        (lines(("solid", LINE)), lines(("solid", [[0.3, 1.0], [0.5, 0.5]])), 0.0),
        (lines(("solid", LINE)), lines(("solid", [[0.2, 1.0], [0.25, 0.875]])), 0.0),  # a piece is not the line
        (lines(("solid", LINE), ("dashed", LINE)), lines(("solid", LINE)), 2 / 3),
    ],
)
def test_polylines_agree_where_they_are_close_all_along(first: Answer, second: Answer, expected: float) -> None:
    assert polylines.agreement(LANES, first, second) == pytest.approx(expected)
    assert polylines.agreement(LANES, second, first) == pytest.approx(expected)


def test_the_distance_at_which_lines_agree_can_be_set() -> None:
    strict = Head("lanes", Kind.POLYLINES, ("solid",), options={"agreement_distance": 0.005})
    assert polylines.agreement(strict, lines(("solid", LINE)), lines(("solid", [[0.21, 1.0], [0.41, 0.5]]))) == 0.0


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([[0, 0]], [[0, 0]], 1.0),
        ([[1, 0]], [[0, 0]], 0.0),
        ([[1, 1, 0, 0]], [[1, 0, 0, 0]], 0.5),
        ([[1, 1, 2, 0]], [[1, 0, 2, 0]], 0.75),
        ([[1, IGNORE, 0, 0]], [[1, 1, 0, 0]], 1.0),
        ([[1, 0]], [[1, 1, 0, 0], [1, 1, 0, 0]], 1.0),  # another size
    ],
)
def test_masks_agree_by_iou(first: Any, second: Any, expected: float) -> None:
    assert mask.agreement(ROAD, cells(first), cells(second)) == pytest.approx(expected)


def test_choices_agree_or_not() -> None:
    assert choice.agreement(WEATHER, said("fog"), said("fog")) == 1
    assert choice.agreement(WEATHER, said("fog"), said("clear")) == 0


def test_the_medoid_of_the_majority_stands_for_all_in_any_order() -> None:
    boxes_said = [drawn(("car", [x, 0.1, x + 0.4, 0.5])) for x in (0.10, 0.12, 0.5)]
    for order in permutations(range(3)):
        found = consensus(OBJECTS, [boxes_said[index] for index in order])
        assert found.index is not None
        assert order[found.index] in (0, 1)
        assert {order[index] for index in found.supporters} == {0, 1}
    two = consensus(OBJECTS, [boxes_said[0], boxes_said[2]])
    assert (two.index, two.agreement, two.supporters) == (None, 0.0, ())
    assert consensus(OBJECTS, boxes_said[:1]).index == 0
    masks = [cells([[1] * n + [0] * (20 - n)]) for n in (10, 12, 14)]
    assert consensus(ROAD, masks).index == 1, "the one in the middle is closest to the others"


def test_no_majority_no_consensus() -> None:
    three = Head("weather", Kind.CHOICE, ("a", "b", "c"))
    assert consensus(three, [said("a"), said("b"), said("c")]).index is None
    assert consensus(three, [said("a"), said("b"), said("a")]).index == 0
    assert consensus(three, [said("a"), said("a"), said("b"), said("b")]).index is None
    with pytest.raises(ValueError, match="nobody"):
        consensus(three, [])
    depth = Head("depth", Kind.DENSE_SCALAR, label_tool=LabelTool.MACHINE)
    with pytest.raises(ValueError, match="no agreement"):
        consensus(depth, [Answer(Kind.DENSE_SCALAR, {"size": [1, 1]}, b"")])


def vote(name: str, what: Said = Said.SUBMITTED, **answers: Answer) -> Vote:
    return Vote(name, what, answers)


HEADS = [OBJECTS, WEATHER]
FOG: Mapping[str, Answer] = {"objects": drawn(), "weather": said("fog")}


@pytest.mark.parametrize(
    ("votes", "people", "outcome"),
    [
        ([], 1, Outcome.NOTHING),
        ([vote("a", Said.SKIPPED)], 1, Outcome.SKIPPED),
        ([vote("a", Said.UNUSABLE)], 1, Outcome.UNUSABLE),
        ([vote("a", **FOG)], 1, Outcome.SETTLED),
        ([vote("a", **FOG)], 2, Outcome.INCOMPLETE),
        ([vote("a", **FOG), vote("b", Said.SKIPPED)], 2, Outcome.INCOMPLETE),
        ([vote("a", **FOG), vote("b", Said.SKIPPED)], 1, Outcome.SETTLED),
        ([vote("a", **FOG), vote("b", **FOG)], 2, Outcome.SETTLED),
        ([vote("a", **FOG), vote("b", Said.UNUSABLE)], 2, Outcome.DISPUTED),
        ([vote("a", **FOG), vote("b", Said.UNUSABLE), vote("c", **FOG)], 2, Outcome.SETTLED),
        ([vote("a", **FOG), vote("b", Said.UNUSABLE), vote("c", Said.UNUSABLE)], 2, Outcome.UNUSABLE),
        ([vote("a")], 1, Outcome.SKIPPED),  # every head marked as not answered
    ],
)
def test_what_votes_come_to(votes: list[Vote], people: int, outcome: Outcome) -> None:
    assert verdict(HEADS, votes, people).outcome is outcome


def test_heads_are_decided_one_by_one() -> None:
    votes = [
        vote("a", objects=drawn(("car", BOX)), weather=said("fog")),
        vote("b", objects=drawn(("car", NEAR)), weather=said("clear")),
        vote("c", objects=drawn()),
    ]
    found = verdict([*HEADS, LANES], votes)
    assert found.outcome is Outcome.DISPUTED
    assert (found.chosen, found.supporters) == ({"objects": 0}, {"objects": (0, 1)})
    assert (found.disputed, found.unanswered) == (("weather",), ("lanes",))
    assert found.agreement["weather"] == 0
