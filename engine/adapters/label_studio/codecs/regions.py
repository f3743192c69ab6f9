"""What every region of the label tool has in common: its frame, its id, its class; and how a kind plugs in."""

from __future__ import annotations

import colorsys
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from xml.etree.ElementTree import Element, SubElement

from engine.domain.answers import Answer
from engine.domain.ontology import Head

# A hyphen can't be in a head's name, so that no head's control can take the name of one of ours.
PICTURE = "the-picture"
# The class that a labeler draws over what nobody can tell; the canonical forms keep it as ignored.
IGNORE_LABEL = "(ignore)"
_IGNORE_COLOUR = "#8c8c8c"

Result = Mapping[str, Any]


class ResultError(ValueError):
    """A result that we can't take as an answer; the message says what is wrong with it, for a person to mend."""


class Codec(Protocol):
    """One kind's way into the label tool and back. A result is one item of an annotation's ``result``."""

    RESULT_TYPE: str

    def control(self, head: Head) -> Element:
        """The head's control in the label config."""

    def encode(self, head: Head, answer: Answer, width: int, height: int) -> list[dict[str, Any]]:
        """The results that show `answer` on a picture of `width` x `height` pixels."""

    def decode(self, head: Head, results: Sequence[Result], width: int, height: int) -> Answer | None:
        """The answer that the head's results draw; None where none of them can mean "empty". Raises ResultError."""


def region(
    head: Head, result_type: str, region_id: str, value: Mapping[str, Any], width: int, height: int
) -> dict[str, Any]:
    """A result in the label tool's form. Its id is led by the head's: regions that share an id become one region."""
    return {
        "id": f"{head.name}:{region_id}",
        "from_name": head.name,
        "to_name": PICTURE,
        "type": result_type,
        "original_width": width,
        "original_height": height,
        "image_rotation": 0,
        "value": dict(value),
    }


def object_id(head: Head, result: Result) -> str:
    """The object's id, the one we gave or the tool's own for what a person drew."""
    return str(result.get("id") or "").removeprefix(f"{head.name}:")


def fresh_ids(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """An id for each item, in order: its own where it has one that is not taken, else one made from its place."""
    taken: set[str] = set()
    ids = []
    for number, item in enumerate(items):
        wanted = str(item.get("id") or f"n{number}")
        unique, copy = wanted, 1
        while unique in taken:
            copy += 1
            unique = f"{wanted}~{copy}"
        taken.add(unique)
        ids.append(unique)
    return ids


def label_of(head: Head, result: Result, key: str) -> str:
    """The one class of a region, IGNORE_LABEL included. Raises ResultError."""
    labels = value_of(head, result).get(key)
    if not isinstance(labels, list) or len(labels) != 1:
        raise ResultError(f"a region of head {head.name!r} has {labels or 'no class'}: give it exactly one class")
    label = labels[0]
    if label not in head.classes and label != IGNORE_LABEL:
        raise ResultError(f"head {head.name!r} has no class {label!r}; it has {', '.join(head.classes)}")
    return str(label)


def value_of(head: Head, result: Result) -> Mapping[str, Any]:
    value = result.get("value")
    if not isinstance(value, Mapping):
        raise ResultError(f"a result of head {head.name!r} has no value")
    return value


def percent(head: Head, value: Mapping[str, Any], key: str) -> float:
    """The tool's percentage as a fraction, not clamped. Raises ResultError."""
    number = value.get(key)
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise ResultError(f"a region of head {head.name!r} has {key} {number!r}, which is not a number")
    return float(number) / 100


def inside(fraction: float) -> float:
    """Clamped to the picture: the tool lets a region reach over the edge by a little."""
    return min(1.0, max(0.0, fraction))


def scored(result: dict[str, Any], item: Mapping[str, Any]) -> dict[str, Any]:
    """The result with the item's score, if it has one."""
    if item.get("score") is not None:
        result["score"] = float(item["score"])
    return result


def label_control(tag: str, head: Head, ignorable: bool, **attributes: str) -> Element:
    """A control of labels, one per class of `head`."""
    control = Element(tag, {"name": head.name, "toName": PICTURE, **attributes})
    for index, name in enumerate(head.classes):
        SubElement(control, "Label", {"value": name, "background": colour(head.name, index)})
    if ignorable:
        SubElement(control, "Label", {"value": IGNORE_LABEL, "background": _IGNORE_COLOUR})
    return control


def colour(head: str, index: int) -> str:
    """A class's colour. It depends on the head's name and the class's place alone, so that more of either change none.

    Hues step by the golden ratio, which keeps neighbours apart, and stay out of the reds: a selected line is red.
    """
    start = int.from_bytes(hashlib.sha256(head.encode()).digest()[:4], "big") / 2**32
    hue = 40 / 360 + (start + index * 0.6180339887) % 1 * 280 / 360
    red, green, blue = colorsys.hls_to_rgb(hue, 0.58, 0.85)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
