"""A pinhole camera on the ego vehicle: rays, projection and its calibration as the manifest states it.

Vehicle axes: x forward, y left, z up, origin on the ground below the rear axle. Camera axes: x right, y down, z along
the optical axis. A pixel (u, v) is sampled at its centre, (u + 0.5, v + 0.5); the camera neither rolls nor yaws, so
that one row of pixels meets the ground at one forward distance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Camera:
    """Picture size in pixels, focal lengths and principal point in pixels, mounting in metres and radians."""

    width: int = 192
    height: int = 96
    focal_px: float = 135.0
    forward_m: float = 1.6
    height_m: float = 1.45
    pitch_down_rad: float = 0.035

    @property
    def cx(self) -> float:
        return self.width / 2

    @property
    def cy(self) -> float:
        return self.height * 0.46

    @cached_property
    def rotation(self) -> Array:
        """Vehicle-from-camera rotation, (3, 3): the columns are the camera's axes in the vehicle's frame."""
        sin, cos = np.sin(self.pitch_down_rad), np.cos(self.pitch_down_rad)
        return np.array([[0, -sin, cos], [-1, 0, 0], [0, -cos, -sin]], dtype=np.float32)

    @cached_property
    def position(self) -> Array:
        """The optical centre in the vehicle's frame, (3,), metres."""
        return np.array([self.forward_m, 0.0, self.height_m], dtype=np.float32)

    @cached_property
    def rays(self) -> Array:
        """Directions in the vehicle's frame, (H, W, 3), scaled so that a ray's parameter is the depth in metres."""
        u = (np.arange(self.width, dtype=np.float32) + 0.5 - self.cx) / self.focal_px
        v = (np.arange(self.height, dtype=np.float32) + 0.5 - self.cy) / self.focal_px
        seen = np.stack(np.broadcast_arrays(u[None, :], v[:, None], np.float32(1.0)), axis=-1)
        return np.ascontiguousarray(seen @ self.rotation.T, dtype=np.float32)

    def project(self, points: NDArray[Any]) -> tuple[Array, Array, Array]:
        """Points of the vehicle's frame, (N, 3) metres, to u, v in pixels and depth in metres, each (N,).

        Points behind the camera have a depth of zero or less, and their u and v mean nothing.
        """
        seen = (np.asarray(points, dtype=np.float32) - self.position) @ self.rotation
        depth = seen[:, 2]
        safe = np.where(np.abs(depth) < 1e-4, np.float32(1e-4), depth)
        return seen[:, 0] / safe * self.focal_px + self.cx, seen[:, 1] / safe * self.focal_px + self.cy, depth

    def calibration(self) -> dict[str, Any]:
        """The stream's calibration, as a clip's manifest holds it."""
        transform = np.eye(4)
        transform[:3, :3] = self.rotation
        transform[:3, 3] = self.position
        return {
            "camera_model": "pinhole",
            "intrinsics": {
                "fx": self.focal_px,
                "fy": self.focal_px,
                "cx": self.cx,
                "cy": self.cy,
                "distortion": [],
            },
            "vehicle_from_sensor": [[round(float(value), 9) for value in row] for row in transform],
            "shutter": "global",
        }
