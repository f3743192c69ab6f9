"""Boxes: axis-aligned rectangles. The tool keeps a corner, a size and a rotation, in percent of the picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from engine.adapters.label_studio.codecs.regions import (
    IGNORE_LABEL,
    Result,
    ResultError,
    fresh_ids,
    inside,
    label_control,
    label_of,
    object_id,
    percent,
    region,
    scored,
    value_of,
)
from engine.domain.answers import Answer
from engine.domain.ontology import Head, Kind


class BoxesCodec:
    RESULT_TYPE = "rectanglelabels"

    def control(self, head: Head) -> Element:
        return label_control("RectangleLabels", head, ignorable=True, canRotate="false", strokeWidth="2")

    def encode(self, head: Head, answer: Answer, width: int, height: int) -> list[dict[str, Any]]:
        objects = answer.value["objects"]
        ignored = [
            {"class": IGNORE_LABEL, "box": box, "id": f"ignore-{n}"}
            for n, box in enumerate(answer.value.get("ignore", ()))
        ]
        items = [*objects, *ignored]
        results = []
        for item, region_id in zip(items, fresh_ids(items), strict=True):
            x0, y0, x1, y1 = (inside(v) for v in item["box"])
            place = {"x": x0 * 100, "y": y0 * 100, "width": (x1 - x0) * 100, "height": (y1 - y0) * 100, "rotation": 0}
            value = {**place, self.RESULT_TYPE: [item["class"]]}
            results.append(scored(region(head, self.RESULT_TYPE, region_id, value, width, height), item))
        return results

    def decode(self, head: Head, results: Sequence[Result], width: int, height: int) -> Answer:
        objects, ignored = [], []
        for result in results:
            label = label_of(head, result, self.RESULT_TYPE)
            box = _hull(head, value_of(head, result), width, height)
            if box[2] <= box[0] or box[3] <= box[1]:
                raise ResultError(f"a {label!r} box of head {head.name!r} has no area inside the picture: remove it")
            if label == IGNORE_LABEL:
                ignored.append(box)
            else:
                objects.append({"id": object_id(head, result), "class": label, "box": box})
        value: dict[str, Any] = {"objects": objects}
        if ignored:
            value["ignore"] = ignored
        return Answer(Kind.BOXES, value)


def _hull(head: Head, value: Mapping[str, Any], width: int, height: int) -> list[float]:
    """The upright box around a rectangle that may be turned, clockwise about its x, y corner, in pixels.

    Our config forbids to turn boxes, so that this is only for annotations that come through the tool's API.
    """
    x, y, w, h = (percent(head, value, key) for key in ("x", "y", "width", "height"))
    turn = math.radians(percent(head, {"rotation": 0, **value}, "rotation") * 100)
    if turn == 0:
        return [inside(x), inside(y), inside(x + w), inside(y + h)]
    cosine, sine = math.cos(turn), math.sin(turn)
    across, down = w * width, h * height
    corners = [(a * cosine - d * sine, a * sine + d * cosine) for a in (0, across) for d in (0, down)]
    xs = [inside(x + dx / width) for dx, _ in corners]
    ys = [inside(y + dy / height) for _, dy in corners]
    return [min(xs), min(ys), max(xs), max(ys)]
