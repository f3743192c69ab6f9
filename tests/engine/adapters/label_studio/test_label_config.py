"""The label config says what the ontology says, in XML that the label tool's own parser takes."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_studio_sdk.label_interface import LabelInterface

from engine.adapters.label_studio.codecs.regions import IGNORE_LABEL, colour
from engine.adapters.label_studio.config import TITLE_MAX, label_config, project_title
from engine.adapters.label_studio.results import NOT_ANSWERED, UNUSABLE
from engine.domain.ontology import Head, Kind, LabelTool, Ontology
from engine.ports import LabelToolRefused

CLASSES = ("car", 'person & "dog" <x>', "čłověk 人")
HEADS = (
    Head("image", Kind.BOXES, CLASSES),  # a name that a control of ours might have had
    Head("lanes", Kind.POLYLINES, ("solid", "dashed")),
    Head("drivable", Kind.MASK, ("road",)),
    Head("weather", Kind.CHOICE, ("clear", "fog")),
    Head("depth", Kind.DENSE_SCALAR, label_tool=LabelTool.MACHINE, unit="m"),
    Head("signs", Kind.BOXES, ("stop",), label_tool=LabelTool.MACHINE),
)


def test_each_head_for_people_has_its_control() -> None:
    tree = ElementTree.fromstring(label_config(Ontology("driving", 1, HEADS)))
    controls = {c.get("name"): (c.tag, [child.get("value") for child in c]) for c in tree.iter() if c.get("toName")}
    assert controls == {
        "image": ("RectangleLabels", [*CLASSES, IGNORE_LABEL]),
        "lanes": ("VectorLabels", ["solid", "dashed"]),
        "drivable": ("BrushLabels", ["road", IGNORE_LABEL]),
        "weather": ("Choices", ["clear", "fog"]),
        NOT_ANSWERED: ("Choices", ["image", "lanes", "drivable", "weather"]),
        UNUSABLE: ("Choices", ["unusable"]),
    }


def test_the_tools_parser_takes_it() -> None:
    LabelInterface(label_config(Ontology("driving", 1, HEADS))).validate()


def test_more_classes_and_heads_change_no_colour() -> None:
    def colours(ontology: Ontology) -> dict[str, str]:
        tree = ElementTree.fromstring(label_config(ontology))
        return {label.get("value", ""): label.get("background", "") for label in tree.iter("Label")}

    before = colours(Ontology("driving", 1, (Head("lanes", Kind.POLYLINES, ("solid",)),)))
    after = colours(Ontology("driving", 2, (HEADS[0], Head("lanes", Kind.POLYLINES, ("solid", "dashed", "botts")))))
    assert after["solid"] == before["solid"]
    assert len({colour("objects", index) for index in range(20)}) == 20


@pytest.mark.parametrize("name", ["$price", IGNORE_LABEL, "two\nlines", " led", "", "a  b"])
def test_a_class_that_the_tool_would_change_is_refused(name: str) -> None:
    with pytest.raises(LabelToolRefused, match="class"):
        label_config(Ontology("driving", 1, (Head("objects", Kind.BOXES, (name,)),)))


def test_an_ontology_without_work_for_people_is_refused() -> None:
    with pytest.raises(LabelToolRefused, match="no head"):
        label_config(Ontology("driving", 1, HEADS[4:]))


@given(st.text(max_size=80), st.text(max_size=80), st.integers(1, 10**6))
def test_titles_keep_to_the_tools_limits(prefix: str, name: str, version: int) -> None:
    title = project_title(prefix, Ontology(name, version, HEADS))
    assert 3 <= len(title) <= TITLE_MAX
    assert title == project_title(prefix, Ontology(name, version, HEADS[:1]))


def test_long_titles_stay_apart() -> None:
    titles = {project_title("fleet " * 12, Ontology("driving", version, HEADS)) for version in range(50)}
    assert len(titles) == 50
