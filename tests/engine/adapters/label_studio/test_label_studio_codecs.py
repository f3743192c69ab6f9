"""Answers survive the way into the label tool's results and back; what can't be understood is said."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.adapters.label_studio.codecs.regions import IGNORE_LABEL, PICTURE, ResultError
from engine.adapters.label_studio.results import (
    NOT_ANSWERED,
    UNUSABLE,
    UNUSABLE_CHOICE,
    from_results,
    is_unusable,
    to_results,
)
from engine.domain.answers import IGNORE, Answer, decode_runs, encode_runs
from engine.domain.ontology import Head, Kind, LabelTool, Ontology

CLASSES = ("car", 'person & "dog" <x>', "čłověk 人")
ONTOLOGY = Ontology(
    "driving",
    1,
    (
        Head("objects", Kind.BOXES, CLASSES),
        Head("lanes", Kind.POLYLINES, ("solid", "dashed")),
        Head("drivable", Kind.MASK, ("road", "pavement")),
        Head("weather", Kind.CHOICE, ("clear", "fog")),
        Head("depth", Kind.DENSE_SCALAR, label_tool=LabelTool.MACHINE, unit="m"),
    ),
)
HEADS = [head.name for head in ONTOLOGY.heads]
WIDTH, HEIGHT = 64, 36

fractions = st.floats(0, 1, allow_nan=False)
ids = st.text("abcXYZ019_-:", min_size=1, max_size=8)


@st.composite
def boxes(draw: st.DrawFn) -> list[float]:
    x0, y0 = draw(st.floats(0, 0.9)), draw(st.floats(0, 0.9))
    return [x0, y0, x0 + draw(st.floats(0.001, 1 - x0)), y0 + draw(st.floats(0.001, 1 - y0))]


@st.composite
def box_answers(draw: st.DrawFn) -> Answer:
    names = draw(st.lists(ids, unique=True, max_size=5))
    objects = [{"id": name, "class": draw(st.sampled_from(CLASSES)), "box": draw(boxes())} for name in names]
    ignored = draw(st.lists(boxes(), max_size=2))
    return Answer(Kind.BOXES, {"objects": objects, **({"ignore": ignored} if ignored else {})})


@st.composite
def line_answers(draw: st.DrawFn) -> Answer:
    points = st.lists(st.tuples(fractions, fractions).map(list), min_size=2, max_size=6).filter(
        lambda p: all(abs(a[0] - b[0]) + abs(a[1] - b[1]) > 1e-6 for a, b in pairwise(p))
    )
    names = draw(st.lists(ids, unique=True, max_size=4))
    lines = [
        {"id": name, "class": draw(st.sampled_from(("solid", "dashed"))), "points": draw(points)} for name in names
    ]
    return Answer(Kind.POLYLINES, {"lines": lines})


def there_and_back(heads: list[str], answers: dict[str, Answer]) -> dict[str, Answer]:
    results = json.loads(json.dumps(to_results(ONTOLOGY, heads, answers, WIDTH, HEIGHT)))
    return from_results(ONTOLOGY, heads, results, WIDTH, HEIGHT)


def result(head: str, kind: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"id": "r1", "from_name": head, "to_name": PICTURE, "type": kind, "value": value, **more}


@given(box_answers())
def test_boxes_come_back_with_their_ids(answer: Answer) -> None:
    back = there_and_back(["objects"], {"objects": answer})["objects"].value
    assert [(o["id"], o["class"]) for o in back["objects"]] == [(o["id"], o["class"]) for o in answer.value["objects"]]
    for mine, theirs in zip(back["objects"], answer.value["objects"], strict=True):
        assert mine["box"] == pytest.approx(theirs["box"], abs=1e-9)
    for mine, theirs in zip(back.get("ignore", []), answer.value.get("ignore", []), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-9)


@given(line_answers())
def test_lines_come_back_in_order(answer: Answer) -> None:
    back = there_and_back(["lanes"], {"lanes": answer})["lanes"].value["lines"]
    assert [(line["id"], line["class"]) for line in back] == [
        (line["id"], line["class"]) for line in answer.value["lines"]
    ]
    for mine, theirs in zip(back, answer.value["lines"], strict=True):
        assert np.array(mine["points"]) == pytest.approx(np.array(theirs["points"]), abs=1e-9)


@settings(max_examples=50)
@given(st.binary(min_size=WIDTH * HEIGHT // 8, max_size=WIDTH * HEIGHT // 8), st.sampled_from([0, 1, 2, IGNORE]))
def test_masks_come_back_exactly(noise: bytes, other: int) -> None:
    bits = np.unpackbits(np.frombuffer(noise, dtype=np.uint8))
    cells = np.where(bits == 1, np.uint8(other), np.uint8(1)).astype(np.uint8)
    cells[: WIDTH * 3] = 0
    answer = Answer(Kind.MASK, {"size": [HEIGHT, WIDTH], "runs": encode_runs(cells.tobytes())})
    assert there_and_back(["drivable"], {"drivable": answer})["drivable"] == answer


def test_a_small_mask_is_brought_to_the_picture() -> None:
    small = np.zeros((9, 16), dtype=np.uint8)
    small[2:5, 3:9] = 2
    answer = Answer(Kind.MASK, {"size": [9, 16], "runs": encode_runs(small.tobytes())})
    back = there_and_back(["drivable"], {"drivable": answer})["drivable"].value
    cells = np.frombuffer(decode_runs(back["runs"], (HEIGHT, WIDTH)), dtype=np.uint8).reshape(HEIGHT, WIDTH)
    assert back["size"] == [HEIGHT, WIDTH]
    assert (cells == np.kron(small, np.ones((4, 4), dtype=np.uint8))).all()


def test_choice_comes_back() -> None:
    answer = Answer(Kind.CHOICE, {"choice": "fog", "score": 0.7})
    assert to_results(ONTOLOGY, HEADS, {"weather": answer}, WIDTH, HEIGHT)[0]["score"] == 0.7
    assert there_and_back(HEADS, {"weather": answer})["weather"].value == {"choice": "fog"}


def test_results_of_all_heads_have_ids_of_their_own() -> None:
    answers = {
        "objects": Answer(
            Kind.BOXES, {"objects": [{"id": "1", "class": "car", "box": [0, 0, 0.5, 0.5], "score": 0.25}] * 2}
        ),
        "lanes": Answer(Kind.POLYLINES, {"lines": [{"id": "1", "class": "solid", "points": [[0, 0], [1, 1]]}]}),
    }
    results = to_results(ONTOLOGY, HEADS, answers, WIDTH, HEIGHT)
    assert [r["id"] for r in results] == ["objects:1", "objects:1~2", "lanes:1"]
    assert [r.get("score") for r in results] == [0.25, 0.25, None]


def test_no_results_mean_empty_save_for_a_choice() -> None:
    answers = from_results(ONTOLOGY, HEADS, [], WIDTH, HEIGHT)
    assert answers == {
        "objects": Answer(Kind.BOXES, {"objects": []}),
        "lanes": Answer(Kind.POLYLINES, {"lines": []}),
        "drivable": Answer(Kind.MASK, {"size": [HEIGHT, WIDTH], "runs": [[0, HEIGHT * WIDTH]]}),
    }


def test_only_wanted_heads_are_answered_and_not_answered_ones_are_left_out() -> None:
    drawn = [
        result(
            "lanes", "vectorlabels", {"vertices": [{"x": 0, "y": 0}, {"x": 50, "y": 50}], "vectorlabels": ["solid"]}
        ),
        result(NOT_ANSWERED, "choices", {"choices": ["objects"]}),
    ]
    assert list(from_results(ONTOLOGY, ["objects", "drivable"], drawn, WIDTH, HEIGHT)) == ["drivable"]
    assert list(from_results(ONTOLOGY, ["objects", "lanes"], drawn, WIDTH, HEIGHT)) == ["lanes"]


def test_unusable_is_read() -> None:
    assert is_unusable([result(UNUSABLE, "choices", {"choices": [UNUSABLE_CHOICE]})])
    assert not is_unusable(
        [result(UNUSABLE, "choices", {"choices": []}), result("weather", "choices", {"choices": ["fog"]})]
    )


def test_what_a_person_drew_is_read() -> None:
    """As the tool's own page saved it: a box and a brush stroke dragged, a line clicked with its first point twice."""
    drawn = json.loads((Path(__file__).parent / "drawn_by_hand.json").read_text())
    answers = from_results(ONTOLOGY, HEADS, drawn, 640, 360)
    (box,) = answers["objects"].value["objects"]
    assert (box["id"], box["class"]) == ("6GDguTLsmt", "car")
    assert box["box"] == pytest.approx([100 / 640, 120 / 360, 180 / 640, 180 / 360], abs=0.002)
    (line,) = answers["lanes"].value["lines"]
    assert np.array(line["points"]) == pytest.approx(
        np.array([[200 / 640, 350 / 360], [300 / 640, 160 / 360]]), abs=0.002
    )
    mask = np.frombuffer(decode_runs(answers["drivable"].value["runs"], (360, 640)), dtype=np.uint8).reshape(360, 640)
    assert int((mask == 1).sum()) == 4659  # pixels of half opacity and more, counted with the tool's own decoder
    assert mask[300, 100] == mask[250, 320] == mask[300, 500] == 1
    assert mask[200, 320] == 0
    assert "weather" not in answers


def test_a_turned_box_becomes_the_upright_box_around_it() -> None:
    value = {"x": 50, "y": 50, "width": 25, "height": 25, "rotation": 90, "rectanglelabels": ["car"]}
    answers = from_results(ONTOLOGY, ["objects"], [result("objects", "rectanglelabels", value)], 200, 100)
    # 50 x 25 pixels from (100, 50), turned clockwise about that corner: 25 to the left, 50 down.
    assert answers["objects"].value["objects"][0]["box"] == pytest.approx([0.375, 0.5, 0.5, 1.0])


def test_a_box_over_the_edge_is_cut() -> None:
    value = {"x": -5, "y": 90, "width": 20, "height": 20, "rotation": 0, "rectanglelabels": [IGNORE_LABEL]}
    answers = from_results(ONTOLOGY, ["objects"], [result("objects", "rectanglelabels", value)], WIDTH, HEIGHT)
    assert answers["objects"].value["objects"] == []
    assert answers["objects"].value["ignore"][0] == pytest.approx([0, 0.9, 0.15, 1.0])


def test_vertices_are_ordered_by_their_predecessors() -> None:
    vertices = [
        {"id": "c", "prevPointId": "b", "x": 30, "y": 0},
        {"id": "a", "x": 10, "y": 0},
        {"id": "b", "prevPointId": "a", "x": 20, "y": 0},
    ]
    drawn = [result("lanes", "vectorlabels", {"vertices": vertices, "vectorlabels": ["solid"]})]
    line = from_results(ONTOLOGY, ["lanes"], drawn, WIDTH, HEIGHT)["lanes"].value["lines"][0]
    assert line["points"] == [[0.1, 0.0], [0.2, 0.0], [0.3, 0.0]]


def test_a_closed_line_ends_where_it_starts() -> None:
    vertices = [
        {"id": n, "prevPointId": p, "x": x, "y": y}
        for n, p, x, y in [("a", "c", 0, 0), ("b", "a", 50, 0), ("c", "b", 50, 50)]
    ]
    drawn = [result("lanes", "vectorlabels", {"vertices": vertices, "closed": True, "vectorlabels": ["solid"]})]
    line = from_results(ONTOLOGY, ["lanes"], drawn, WIDTH, HEIGHT)["lanes"].value["lines"][0]
    assert line["points"] == [[0, 0], [0.5, 0], [0.5, 0.5], [0, 0]]


def test_a_curve_is_made_straight() -> None:
    control = {"x": 0, "y": 100}
    vertices = [
        {"id": "a", "x": 0, "y": 0, "isBezier": True, "controlPoint1": {"x": 0, "y": 0}, "controlPoint2": control},
        {"id": "b", "prevPointId": "a", "x": 100, "y": 0, "isBezier": True, "controlPoint1": {"x": 100, "y": 100}},
    ]
    drawn = [result("lanes", "vectorlabels", {"vertices": vertices, "vectorlabels": ["solid"]})]
    points = from_results(ONTOLOGY, ["lanes"], drawn, WIDTH, HEIGHT)["lanes"].value["lines"][0]["points"]
    assert len(points) == 17
    assert points[8] == pytest.approx([0.5, 0.75])  # a cubic's middle is 3/4 of the way to its control points


@pytest.mark.parametrize(
    ("drawn", "says"),
    [
        (result("bridges", "choices", {"choices": ["x"]}), "no head"),
        (result("depth", "choices", {"choices": ["x"]}), "no head"),
        (result("objects", "choices", {"choices": ["car"]}), "type"),
        (
            result(
                "objects", "rectanglelabels", {"x": 1, "y": 1, "width": 9, "height": 9, "rectanglelabels": ["cart"]}
            ),
            "no class 'cart'",
        ),
        (
            result("objects", "rectanglelabels", {"x": 1, "y": 1, "width": 9, "height": 9, "rectanglelabels": []}),
            "exactly one",
        ),
        (
            result("objects", "rectanglelabels", {"x": 1, "y": 1, "width": 0, "height": 9, "rectanglelabels": ["car"]}),
            "no area",
        ),
        (
            result(
                "objects", "rectanglelabels", {"x": None, "y": 1, "width": 9, "height": 9, "rectanglelabels": ["car"]}
            ),
            "number",
        ),
        (result("objects", "rectanglelabels", {"x": float("nan"), "y": 1, "rectanglelabels": ["car"]}), "number"),
        (result("objects", "rectanglelabels", None), "no value"),
        (result("lanes", "vectorlabels", {"vectorlabels": ["solid"]}), "no vertices"),
        (result("lanes", "vectorlabels", {"vertices": [], "vectorlabels": ["solid"]}), "two points"),
        (
            result("lanes", "vectorlabels", {"vertices": [{"x": 1, "y": 1}] * 3, "vectorlabels": ["solid"]}),
            "two points",
        ),
        (
            result(
                "lanes",
                "vectorlabels",
                {
                    "vertices": [
                        {"id": "a", "x": 1, "y": 1},
                        *({"id": n, "prevPointId": "a", "x": 2, "y": 2} for n in "bc"),
                    ],
                    "vectorlabels": ["solid"],
                },
            ),
            "forks",
        ),
        (
            result(
                "lanes",
                "vectorlabels",
                {
                    "vertices": [
                        {"id": n, "prevPointId": p, "x": 1, "y": 1} for n, p in [("a", None), ("b", "c"), ("c", "b")]
                    ],
                    "vectorlabels": ["solid"],
                },
            ),
            "hold together",
        ),
        (result("drivable", "brushlabels", {"format": "rle", "rle": [1, 2], "brushlabels": ["road"]}), "header"),
        (result("drivable", "brushlabels", {"format": "rle", "rle": "no", "brushlabels": ["road"]}), "list of bytes"),
        (result("drivable", "brushlabels", {"format": "png", "brushlabels": ["road"]}), "format"),
        (
            result(
                "drivable",
                "brushlabels",
                {"format": "rle", "rle": [], "brushlabels": ["road"]},
                original_width=9,
                original_height=9,
            ),
            "drawn on 9x9",
        ),
        (result("weather", "choices", {"choices": ["snow"]}), "no class 'snow'"),
        (result("weather", "choices", {"choices": ["clear", "fog"]}), "choose one"),
        (result(NOT_ANSWERED, "choices", {"choices": ["bridges"]}), "no head: bridges"),
        ("nonsense", "not an object"),
    ],
)
def test_what_cant_be_understood_is_said(drawn: Any, says: str) -> None:
    with pytest.raises(ResultError, match=says):
        from_results(ONTOLOGY, HEADS, [drawn], WIDTH, HEIGHT)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-5, 300) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
value_keys = (
    "x",
    "y",
    "width",
    "height",
    "rotation",
    "rectanglelabels",
    "vectorlabels",
    "vertices",
    "closed",
    "rle",
    "format",
    "choices",
)
values = st.fixed_dictionaries({}, optional=dict.fromkeys(value_keys, json_values))


@given(
    st.sampled_from([*HEADS, NOT_ANSWERED, UNUSABLE]),
    st.sampled_from(["rectanglelabels", "vectorlabels", "brushlabels", "choices"]),
    values,
)
def test_no_result_crashes_the_reader(head: str, kind: str, value: dict[str, Any]) -> None:
    labels = {"rectanglelabels": ["car"], "vectorlabels": ["solid"], "brushlabels": ["road"]}
    for filled in (value, {**value, **labels, "format": "rle"}):
        with suppress(ResultError):
            assert set(from_results(ONTOLOGY, HEADS, [result(head, kind, filled)], WIDTH, HEIGHT)) <= set(HEADS)
        assert is_unusable([result(head, kind, filled)]) in (True, False)


def test_an_answer_that_its_head_cant_have_is_refused() -> None:
    with pytest.raises(ResultError, match="no class 'tram'"):
        to_results(ONTOLOGY, HEADS, {"weather": Answer(Kind.CHOICE, {"choice": "tram"})}, WIDTH, HEIGHT)
