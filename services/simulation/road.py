"""The road: a curved centreline, its cross-section, and how both lie in the ego vehicle's frame.

Road coordinates are (s, d): metres along the centreline and metres to its left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
STEP_M = 1.0
BEHIND_M = 40.0
LENGTH_M = 560.0
SIGHT_M = 320.0


@dataclass(frozen=True)
class Mark:
    """One painted line at `d` metres from the centreline."""

    d: float
    dashed: bool
    yellow: bool = False


@dataclass(frozen=True)
class Road:
    """A stretch of road of one kind: highway (one way), rural or urban (two ways, the left half is oncoming).

    `waves` are (amplitude of curvature 1/m, wavelength m, phase rad): sums of sines keep the heading bounded.
    """

    kind: str
    lanes: int
    lane_width_m: float
    shoulder_m: float
    waves: tuple[tuple[float, float, float], ...]

    @property
    def half_width_m(self) -> float:
        return self.lanes * self.lane_width_m / 2

    @property
    def oncoming_lanes(self) -> int:
        return 0 if self.kind == "highway" else self.lanes // 2

    def lane_centre(self, lane: int) -> float:
        """d of a lane's middle; lane 0 is the rightmost."""
        return -self.half_width_m + (lane + 0.5) * self.lane_width_m

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        marks = []
        for edge in range(self.lanes + 1):
            outer = edge in (0, self.lanes)
            middle = self.oncoming_lanes > 0 and edge == self.lanes - self.oncoming_lanes
            inset = 0.15 if edge == 0 else -0.15 if edge == self.lanes else 0.0
            d = -self.half_width_m + edge * self.lane_width_m + inset
            marks.append(Mark(d, dashed=not outer and not (middle and self.lanes > 2), yellow=middle))
        return tuple(marks)

    @cached_property
    def _course(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        s = np.arange(-BEHIND_M, LENGTH_M, STEP_M)
        heading = np.zeros_like(s)
        for amplitude, wavelength, phase in self.waves:
            rate = 2 * np.pi / wavelength
            heading += amplitude / rate * (np.sin(rate * s + phase) - np.sin(phase))
        x = np.concatenate([[0.0], np.cumsum(np.cos((heading[1:] + heading[:-1]) / 2))]) * STEP_M
        y = np.concatenate([[0.0], np.cumsum(np.sin((heading[1:] + heading[:-1]) / 2))]) * STEP_M
        return s, x, y, heading

    def heading(self, s: float) -> float:
        course = self._course
        return float(np.interp(s, course[0], course[3]))

    def curvature(self, s: float) -> float:
        """Curvature in 1/m, positive to the left."""
        return float(sum(a * np.cos(2 * np.pi / w * s + p) for a, w, p in self.waves))

    def seen_from(self, s: float, d: float) -> RoadView:
        """The centreline in the frame of an ego vehicle at (s, d) that heads along the road."""
        course_s, course_x, course_y, course_heading = self._course
        heading = self.heading(s)
        cos, sin = np.cos(heading), np.sin(heading)
        near = (course_s > s - 30) & (course_s < s + SIGHT_M)
        dx = course_x[near] - (np.interp(s, course_s, course_x) - d * sin)
        dy = course_y[near] - (np.interp(s, course_s, course_y) + d * cos)
        return RoadView(course_s[near], cos * dx + sin * dy, cos * dy - sin * dx, course_heading[near] - heading)


@dataclass(frozen=True)
class RoadView:
    """The centreline seen by the ego vehicle: s, x, y in metres and heading in radians, each (N,), by ascending x."""

    s: NDArray[Any]
    x: NDArray[Any]
    y: NDArray[Any]
    heading: NDArray[Any]

    def place(self, s: float, d: float) -> tuple[float, float, float]:
        """Road coordinates to x, y and the road's heading in the vehicle's frame.

        The inverse of `locate`, so that what is placed on a line is seen on that line.
        """
        x, y, heading = (float(np.interp(s, self.s, v)) for v in (self.x, self.y, self.heading))
        return x - d * np.sin(heading), y + d * np.cos(heading), heading

    def lateral(self, x: NDArray[Any], d: float) -> Array:
        """y of the line at `d` for forward distances x."""
        heading = np.interp(x, self.x, self.heading)
        return np.asarray(np.interp(x, self.x, self.y) + d / np.cos(heading), dtype=np.float32)

    def locate(self, x: NDArray[Any], y: NDArray[Any]) -> tuple[Array, Array]:
        """Ground points, x (R,) of each row and y (R, W), to s and d, each (R, W).

        Takes the centreline as straight across the road's width, as `place` and `lateral` do.
        """
        heading = np.interp(x, self.x, self.heading)
        offset = y - np.interp(x, self.x, self.y).astype(np.float32)[:, None]
        s = (
            np.interp(x, self.x, self.s).astype(np.float32)[:, None]
            + offset * np.sin(heading).astype(np.float32)[:, None]
        )
        return s, offset * np.cos(heading).astype(np.float32)[:, None]
