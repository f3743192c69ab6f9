"""Polylines: the tool's vectors, a chain of vertices that name their predecessor, in percent of the picture."""

from __future__ import annotations

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

# Straight pieces that stand in for one curved segment.
_CURVE_PIECES = 16


class PolylinesCodec:
    RESULT_TYPE = "vectorlabels"

    def control(self, head: Head) -> Element:
        return label_control(
            "VectorLabels",
            head,
            ignorable=False,
            closable="false",
            curves="false",
            skeleton="false",
            minPoints="2",
            strokeWidth="3",
        )

    def encode(self, head: Head, answer: Answer, width: int, height: int) -> list[dict[str, Any]]:
        lines = answer.value["lines"]
        results = []
        for line, region_id in zip(lines, fresh_ids(lines), strict=True):
            vertices = [
                {
                    "id": f"{head.name}:{region_id}:{number}",
                    "prevPointId": f"{head.name}:{region_id}:{number - 1}" if number else None,
                    "x": inside(x) * 100,
                    "y": inside(y) * 100,
                    "isBezier": False,
                }
                for number, (x, y) in enumerate(line["points"])
            ]
            value = {"vertices": vertices, "closed": False, self.RESULT_TYPE: [line["class"]]}
            results.append(scored(region(head, self.RESULT_TYPE, region_id, value, width, height), line))
        return results

    def decode(self, head: Head, results: Sequence[Result], width: int, height: int) -> Answer:
        lines = []
        for result in results:
            label = label_of(head, result, self.RESULT_TYPE)
            if label == IGNORE_LABEL:
                raise ResultError(f"head {head.name!r} takes no {IGNORE_LABEL}: its lines can't be ignored")
            points = _points(head, value_of(head, result))
            if len(points) < 2:
                raise ResultError(
                    f"a {label!r} line of head {head.name!r} has fewer than two points: remove it or go on drawing"
                )
            lines.append({"id": object_id(head, result), "class": label, "points": points})
        return Answer(Kind.POLYLINES, {"lines": lines})


def _points(head: Head, value: Mapping[str, Any]) -> list[list[float]]:
    """The line's points in order, curves made straight, points that repeat left out."""
    chain = _chain(head, value.get("vertices"))
    if value.get("closed") and chain:
        chain = [*chain, chain[0]]
    points: list[list[float]] = []
    for number, vertex in enumerate(chain):
        here = _at(head, vertex)
        if number and (vertex.get("isBezier") or chain[number - 1].get("isBezier")):
            points.extend(_curve(head, chain[number - 1], vertex))
        else:
            points.append(here)
    points = [[inside(x), inside(y)] for x, y in points]
    return [point for number, point in enumerate(points) if number == 0 or point != points[number - 1]]


def _chain(head: Head, vertices: Any) -> list[Mapping[str, Any]]:
    """The vertices from the first to the last. Their order in the list is the order of drawing, which is another."""
    if not isinstance(vertices, list) or not all(isinstance(vertex, Mapping) for vertex in vertices):
        raise ResultError(f"a line of head {head.name!r} has no vertices")
    if not any(vertex.get("prevPointId") for vertex in vertices):
        return vertices
    ids = {vertex.get("id") for vertex in vertices}
    followers: dict[Any, Mapping[str, Any]] = {}
    starts = []
    for vertex in vertices:
        before = vertex.get("prevPointId")
        if before not in ids or before is None:
            starts.append(vertex)
        elif before in followers:
            raise ResultError(f"a line of head {head.name!r} forks: draw each branch as a line of its own")
        else:
            followers[before] = vertex
    if len(starts) > 1:
        raise ResultError(f"a line of head {head.name!r} is in {len(starts)} pieces: draw each as a line of its own")
    chain = [starts[0] if starts else vertices[0]]  # no start: a closed line, whose first vertex names the last
    while len(chain) < len(vertices):
        following = followers.get(chain[-1].get("id"))
        if following is None or following is chain[0]:
            raise ResultError(f"a line of head {head.name!r} does not hold together: draw it anew")
        chain.append(following)
    return chain


def _at(head: Head, vertex: Mapping[str, Any]) -> list[float]:
    return [percent(head, vertex, "x"), percent(head, vertex, "y")]


def _curve(head: Head, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[list[float]]:
    """A cubic Bézier segment as straight pieces, without its first point."""
    p0, p3 = _at(head, start), _at(head, end)
    leaving, arriving = start.get("controlPoint2"), end.get("controlPoint1")
    p1 = _at(head, leaving) if start.get("isBezier") and isinstance(leaving, Mapping) else p0
    p2 = _at(head, arriving) if end.get("isBezier") and isinstance(arriving, Mapping) else p3
    points = []
    for step in range(1, _CURVE_PIECES + 1):
        t = step / _CURVE_PIECES
        weights = ((1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3)
        points.append([sum(w * p[axis] for w, p in zip(weights, (p0, p1, p2, p3), strict=True)) for axis in (0, 1)])
    return points
