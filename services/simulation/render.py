"""An analytic ray-caster: one ray a pixel meets the ground, or the nearest cuboid, or the sky.

One sample a pixel and no blending at edges, so that every truth is read from the very hits that were painted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.simulation import paint
from services.simulation.camera import Camera
from services.simulation.scene import Body, Part, Scene

Array = NDArray[np.floating[Any]]

SKY, ROAD, SHOULDER, VERGE, FIRST_BODY = 0, 1, 2, 3, 10
NEAR_M, FAR_M = 0.4, 300.0
CORNERS = np.array(list(product((-0.5, 0.5), repeat=3)), dtype=np.float32)


@dataclass(frozen=True)
class Rendering:
    """A picture and the hits behind it.

    rgb (H, W, 3) uint8; depth (H, W) float32 metres along the optical axis, inf for the sky; surface (H, W) int32: SKY,
    ROAD, SHOULDER, VERGE or FIRST_BODY + the body's index; normals (H, W, 3) float32 in the camera's axes, NaN for the
    sky; extent (bodies,): pixels that each body would cover if nothing stood in front of it.
    """

    rgb: NDArray[np.uint8]
    depth: Array
    surface: NDArray[np.int32]
    normals: Array
    extent: NDArray[np.int64]
    scene: Scene
    camera: Camera


def render(scene: Scene, camera: Camera) -> Rendering:
    """Cast the scene. The same scene and camera give the same bytes."""
    canvas = _Canvas(scene, camera)
    canvas.cast_ground()
    for index, body in enumerate(scene.bodies):
        if body.head == "objects":
            canvas.cast_shadow(body)
        canvas.cast_body(index, body)
    rgb = canvas.expose()
    normals = canvas.normals @ camera.rotation
    normals[canvas.surface == SKY] = np.nan
    return Rendering(rgb, canvas.depth, canvas.surface, normals, canvas.extent, scene, camera)


class _Canvas:
    """The buffers of one picture while it is cast."""

    def __init__(self, scene: Scene, camera: Camera) -> None:
        shape = (camera.height, camera.width)
        self.scene, self.camera = scene, camera
        self.depth = np.full(shape, np.inf, dtype=np.float32)
        self.surface = np.zeros(shape, dtype=np.int32)
        self.normals = np.zeros((*shape, 3), dtype=np.float32)
        self.colour = paint.sky(
            camera,
            scene.conditions,
            float(scene.road.heading(float(np.interp(0, scene.view.x, scene.view.s)))),
            scene.seed >> 8,
        )
        self.extent = np.zeros(len(scene.bodies), dtype=np.int64)

    def cast_ground(self) -> None:
        camera, scene = self.camera, self.scene
        down = camera.rays[:, 0, 2]
        with np.errstate(divide="ignore"):
            reach = np.where(down < -1e-6, -camera.height_m / down, np.inf).astype(np.float32)
        rows = np.flatnonzero(reach < FAR_M)
        if not rows.size:
            return
        top = int(rows[0])
        depth = reach[top:]
        x = camera.forward_m + depth * camera.rays[top:, 0, 0]
        y = depth[:, None] * camera.rays[top:, :, 1]
        s, d = scene.view.locate(x, y)
        footprint = np.broadcast_to((depth / camera.focal_px)[:, None], y.shape)
        albedo, retro, surface = paint.ground(scene.road, s, d, footprint)
        beam = paint.headlights(x[:, None], y, np.zeros_like(y))
        sun = np.full(y.shape, paint.SUN[2], dtype=np.float32)
        self.colour[top:] = paint.lit(albedo, sun, beam, retro, scene.conditions)
        self.depth[top:] = depth[:, None]
        self.surface[top:] = surface
        self.normals[top:, :, 2] = 1

    def cast_shadow(self, body: Body) -> None:
        """Darken the ground at the body's foot."""
        length, width = body.parts[0].size[:2]
        if len(body.parts) > 1:
            length = max(part.size[0] / 2 + abs(part.middle[0]) for part in body.parts) * 2
        margin = 0.35
        size = (length + 2 * margin, width + 2 * margin, 0.02)
        window = self._window(body, Part((0.0, 0.0, 0.0), size, (0.0, 0.0, 0.0)))
        if window is None:
            return
        rows, columns = window
        depth = self.depth[rows, columns]
        on_ground = (self.surface[rows, columns] > SKY) & (self.surface[rows, columns] < FIRST_BODY)
        reach = np.where(on_ground, depth, 0.0).astype(np.float32)
        rays = self.camera.rays[rows, columns]
        x = self.camera.forward_m + reach * rays[..., 0] - body.x
        y = reach * rays[..., 1] - body.y
        cos, sin = np.float32(np.cos(body.yaw)), np.float32(np.sin(body.yaw))
        along, across = np.abs(cos * x + sin * y), np.abs(cos * y - sin * x)
        edge = np.minimum(length / 2 + margin - along, width / 2 + margin - across) / margin
        dark = np.where(on_ground, np.clip(edge, 0, 1) * 0.55, 0).astype(np.float32)
        self.colour[rows, columns] *= (1 - dark)[..., None]

    def cast_body(self, index: int, body: Body) -> None:
        covered: NDArray[np.bool_] | None = None
        for part in body.parts:
            window = self._window(body, part)
            if window is None:
                continue
            rows, columns = window
            hit = self._hit(body, part, rows, columns, index)
            if covered is None:
                covered = np.zeros(self.depth.shape, dtype=np.bool_)
            covered[rows, columns] |= hit
        if covered is not None:
            self.extent[index] = np.count_nonzero(covered)

    def _window(self, body: Body, part: Part) -> tuple[slice, slice] | None:
        """The rows and columns that the part can cover, or None when it is out of sight."""
        local = CORNERS * np.array(part.size, dtype=np.float32) + np.array(part.middle, dtype=np.float32)
        cos, sin = np.cos(body.yaw), np.sin(body.yaw)
        corners = np.stack(
            [
                cos * local[:, 0] - sin * local[:, 1] + body.x,
                sin * local[:, 0] + cos * local[:, 1] + body.y,
                local[:, 2],
            ],
            axis=1,
        )
        u, v, depth = self.camera.project(corners)
        if depth.max() < NEAR_M:
            return None
        if depth.min() < NEAR_M:
            return slice(0, self.camera.height), slice(0, self.camera.width)
        left, right = max(int(u.min()), 0), min(int(u.max()) + 1, self.camera.width)
        top, bottom = max(int(v.min()), 0), min(int(v.max()) + 1, self.camera.height)
        return None if left >= right or top >= bottom else (slice(top, bottom), slice(left, right))

    def _hit(self, body: Body, part: Part, rows: slice, columns: slice, index: int) -> NDArray[np.bool_]:
        """Cast one cuboid, paint where it is nearest, and say where it would be seen alone, (h, w)."""
        cos, sin = np.float32(np.cos(body.yaw)), np.float32(np.sin(body.yaw))
        rays = self.camera.rays[rows, columns]
        shape = rays.shape[:2]
        eye = self.camera.position - np.array([body.x, body.y, 0], dtype=np.float32)
        origin = np.array([cos * eye[0] + sin * eye[1], cos * eye[1] - sin * eye[0], eye[2]], dtype=np.float32)
        origin -= np.array(part.middle, dtype=np.float32)
        ray: Array = np.stack(
            [cos * rays[..., 0] + sin * rays[..., 1], cos * rays[..., 1] - sin * rays[..., 0], rays[..., 2]], axis=-1
        ).reshape(-1, 3)
        ray = np.where(np.abs(ray) < 1e-7, np.float32(1e-7), ray)
        half = np.array(part.size, dtype=np.float32) / 2
        step = np.abs(half / ray)
        middle = -origin / ray
        enter, leave = middle - step, middle + step
        axis = np.argmax(enter, axis=1)
        first = np.max(enter, axis=1)
        hit = (first < np.min(leave, axis=1)) & (first > NEAR_M)
        if part.paint == "sign":
            place = (origin + first[:, None] * ray) / half
            hit &= (axis == 0) & paint.sign_outline(part.motif, place[:, 1], place[:, 2])
        seen = np.flatnonzero(hit & (first < self.depth[rows, columns].reshape(-1)))
        if seen.size:
            place = (origin + first[seen, None] * ray[seen]) / half
            self._paint(body, part, rows, columns, index, seen, first[seen], axis[seen], place, ray[seen])
        return hit.reshape(shape)

    def _paint(
        self,
        body: Body,
        part: Part,
        rows: slice,
        columns: slice,
        index: int,
        seen: NDArray[Any],
        depth: Array,
        axis: NDArray[Any],
        place: Array,
        ray: Array,
    ) -> None:
        width = columns.stop - columns.start
        row, column = rows.start + seen // width, columns.start + seen % width
        outward = -np.sign(np.take_along_axis(ray, axis[:, None], axis=1)[:, 0])
        local = np.zeros((seen.size, 3), dtype=np.float32)
        local[np.arange(seen.size), axis] = outward
        cos, sin = np.float32(np.cos(body.yaw)), np.float32(np.sin(body.yaw))
        normal = np.stack(
            [cos * local[:, 0] - sin * local[:, 1], sin * local[:, 0] + cos * local[:, 1], local[:, 2]], axis=1
        )
        albedo, emission, retro = paint.face(part, place, axis, outward > 0, self.scene.conditions)
        at = self.camera.position + depth[:, None] * self.camera.rays[row, column]
        beam = paint.headlights(at[:, 0], at[:, 1], at[:, 2]) * np.maximum(0.15, -normal[:, 0])
        sun = np.maximum(0, normal @ paint.SUN)
        self.colour[row, column] = paint.lit(albedo, sun, beam, retro, self.scene.conditions) + emission
        self.depth[row, column] = depth
        self.surface[row, column] = FIRST_BODY + index
        self.normals[row, column] = normal

    def expose(self) -> NDArray[np.uint8]:
        """Air, glow of lamps, the sensor's noise; then 8 bits."""
        conditions = self.scene.conditions
        picture = self.colour
        if conditions.fog_per_m > 0:
            through = np.exp(-conditions.fog_per_m * np.minimum(self.depth, 400))[..., None]
            picture = picture * through + paint.colour(paint.FOG_COLOUR[conditions.time_of_day]) * (1 - through)
        if conditions.time_of_day != "day":
            for u, v, depth, tint in self._lamps():
                self._glow(picture, u, v, depth, tint)
        noise = np.random.default_rng(self.scene.seed).normal(0, conditions.noise, picture.shape).astype(np.float32)
        cast = np.array([1 + 0.06 * conditions.hue, 1, 1 - 0.06 * conditions.hue], dtype=np.float32)
        return np.asarray(np.clip((picture * conditions.exposure * cast + noise) * 255 + 0.5, 0, 255), dtype=np.uint8)

    def _lamps(self) -> Iterator[tuple[float, float, float, Array]]:
        for index, body in enumerate(self.scene.bodies):
            if not body.glows:
                continue
            front = np.cos(body.yaw) < 0  # it comes towards us
            reach = max(part.size[0] / 2 + abs(part.middle[0]) for part in body.parts)
            end = reach if front else -reach
            tint = paint.colour((1.0, 0.95, 0.8)) if front else paint.colour((0.55, 0.05, 0.04))
            cos, sin = np.cos(body.yaw), np.sin(body.yaw)
            lamps = np.array([[body.x + cos * end - sin * y, body.y + sin * end + cos * y, 0.7] for y in (0.7, -0.7)])
            for u, v, depth in zip(*self.camera.project(lamps), strict=True):
                inside = depth > 1 and 0 <= u < self.camera.width and 0 <= v < self.camera.height
                if inside and self.surface[int(v), int(u)] == FIRST_BODY + index:
                    yield float(u), float(v), float(depth), tint

    def _glow(self, picture: Array, u: float, v: float, depth: float, tint: Array) -> None:
        spread = 1.2 + 25 / depth
        size = int(3 * spread) + 1
        rows = slice(max(0, int(v) - size), min(self.camera.height, int(v) + size + 1))
        columns = slice(max(0, int(u) - size), min(self.camera.width, int(u) + size + 1))
        dv = np.arange(rows.start, rows.stop, dtype=np.float32)[:, None] + 0.5 - v
        du = np.arange(columns.start, columns.stop, dtype=np.float32)[None, :] + 0.5 - u
        air = np.exp(-self.scene.conditions.fog_per_m * depth)
        picture[rows, columns] += (0.6 * air * np.exp(-(du * du + dv * dv) / (2 * spread * spread)))[..., None] * tint
