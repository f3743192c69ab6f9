"""The exact answer of every head, read from the hits that painted the picture; and the driving fleet's ontology."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.domain.answers import Answer
from engine.domain.ontology import Head, Kind, LabelTool, Ontology
from services.simulation.render import FIRST_BODY, ROAD, SKY, Rendering
from services.simulation.scene import OBJECT_CLASSES, SIGN_CLASSES

LANE_SIGHT_M = 60.0
LANE_ROW_STEP = 4
LANE_MIN_ROWS = 6
MIN_PIXELS = {"objects": 20, "signs": 16}
MIN_SIDE_PIXELS = {"objects": 3, "signs": 5}
MIN_SEEN_SHARE = 0.35
MIN_THROUGH_FOG = 0.14
MIN_BRIGHT_AT_NIGHT = 48  # of 255, the brightest tenth of the pixels


def driving_ontology() -> Ontology:
    """What the simulated fleet's first models answer. Velocity and normals have truths but are not heads yet."""
    return Ontology(
        "driving",
        1,
        (
            Head("driveable", Kind.MASK, ("driveable",)),
            Head("lanes", Kind.POLYLINES, ("lane",)),
            Head("depth", Kind.DENSE_SCALAR, label_tool=LabelTool.MACHINE, unit="m"),
            Head("objects", Kind.BOXES, OBJECT_CLASSES),
            Head("signs", Kind.BOXES, SIGN_CLASSES),
        ),
    )


def answers(rendering: Rendering) -> dict[str, Answer]:
    """Every truth of a rendering by head: those of `driving_ontology`, and `normals`.

    Boxes are those of the visible pixels. What is too small, too hidden or too dark or foggy for a person to name is an
    ignored region. An object's `velocity_mps` attribute is over ground, along the vehicle's x and y.
    """
    return {
        "driveable": _driveable(rendering),
        "lanes": _lanes(rendering),
        "depth": _depth(rendering),
        "objects": _boxes(rendering, "objects"),
        "signs": _boxes(rendering, "signs"),
        "normals": Answer(Kind.DENSE_VECTOR, {"size": list(rendering.depth.shape)}, npy(rendering.normals)),
    }


def npy(array: NDArray[Any]) -> bytes:
    """An array as a float16 .npy file, as a dense answer holds it."""
    buffer = io.BytesIO()
    np.save(buffer, array.astype(np.float16), allow_pickle=False)
    return buffer.getvalue()


def mask_answer(cells: NDArray[Any]) -> Answer:
    """Class indices (H, W) to the canonical mask."""
    flat = np.asarray(cells, dtype=np.uint8).reshape(-1)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(flat)) + 1])
    lengths = np.diff(np.concatenate([starts, [flat.size]]))
    runs = [[int(index), int(length)] for index, length in zip(flat[starts], lengths, strict=True)]
    return Answer(Kind.MASK, {"size": [int(side) for side in np.shape(cells)], "runs": runs})


def _driveable(rendering: Rendering) -> Answer:
    return mask_answer(rendering.surface == ROAD)


def _depth(rendering: Rendering) -> Answer:
    depth = np.where(rendering.surface == SKY, np.nan, rendering.depth)
    return Answer(Kind.DENSE_SCALAR, {"size": list(depth.shape)}, npy(depth))


def _can_be_seen(rendering: Rendering, rows: NDArray[Any], columns: NDArray[Any], depth: float) -> bool:
    """Whether air and light leave enough of these pixels for a person to name what they show."""
    conditions = rendering.scene.conditions
    if np.exp(-conditions.fog_per_m * depth) < MIN_THROUGH_FOG:
        return False
    bright = np.percentile(rendering.rgb[rows, columns].max(axis=-1), 90)
    return conditions.time_of_day != "night" or bool(bright >= MIN_BRIGHT_AT_NIGHT)


def _boxes(rendering: Rendering, head: str) -> Answer:
    height, width = rendering.depth.shape
    objects: list[dict[str, Any]] = []
    ignore: list[list[float]] = []
    for index, body in enumerate(rendering.scene.bodies):
        if body.head != head or body.label is None:
            continue
        rows, columns = np.nonzero(rendering.surface == FIRST_BODY + index)
        if not rows.size:
            continue
        x0, x1, y0, y1 = int(columns.min()), int(columns.max()) + 1, int(rows.min()), int(rows.max()) + 1
        box = [x0 / width, y0 / height, x1 / width, y1 / height]
        depth = float(np.median(rendering.depth[rows, columns]))
        named = (
            rows.size >= MIN_PIXELS[head]
            and min(x1 - x0, y1 - y0) >= MIN_SIDE_PIXELS[head]
            and rows.size >= MIN_SEEN_SHARE * rendering.extent[index]
            and _can_be_seen(rendering, rows, columns, depth)
        )
        if not named:
            ignore.append(box)
            continue
        found: dict[str, Any] = {"id": body.id, "class": body.label, "box": box}
        if head == "objects":
            found["attributes"] = {"velocity_mps": [round(v, 3) for v in body.velocity_mps], "depth_m": round(depth, 2)}
        objects.append(found)
    return Answer(Kind.BOXES, {"objects": objects, "ignore": ignore})


def _lanes(rendering: Rendering) -> Answer:
    """Each painted line's visible part, bottom to top, a point every few rows; a gap behind an object is bridged."""
    scene, camera = rendering.scene, rendering.camera
    down = camera.rays[:, 0, 2]
    rows = np.flatnonzero(down < -1e-3)
    depth = -camera.height_m / down[rows]
    sight = LANE_SIGHT_M
    if scene.conditions.fog_per_m > 0:
        sight = min(sight, 2.0 / scene.conditions.fog_per_m)
    if scene.conditions.time_of_day == "night" and not scene.conditions.street_lit:
        sight = min(sight, 45.0)
    rows, depth = rows[depth < sight][::-1], depth[depth < sight][::-1]
    x = camera.forward_m + depth * camera.rays[rows, 0, 0]
    lines = []
    for number, mark in enumerate(scene.road.marks):
        column = camera.cx - camera.focal_px * scene.view.lateral(x, mark.d) / depth
        inside = (column >= 0) & (column < camera.width)
        at = np.clip(column, 0, camera.width - 1).astype(np.int64)
        surface = rendering.surface[rows, at]
        visible = np.flatnonzero(inside & (surface > SKY) & (surface < FIRST_BODY))
        if visible.size < LANE_MIN_ROWS:
            continue
        kept = visible[np.unique(np.concatenate([np.arange(0, visible.size, LANE_ROW_STEP), [visible.size - 1]]))]
        points = [[float(column[i] / camera.width), float((rows[i] + 0.5) / camera.height)] for i in kept]
        lines.append({"id": f"lane-{number}", "class": "lane", "points": points})
    return Answer(Kind.POLYLINES, {"lines": lines})
