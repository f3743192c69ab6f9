"""Small drawn roads with their exact answers: by day or night, the road somewhere else in every drive."""

from __future__ import annotations

import io
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from engine.adapters.video.encode import encode_clip
from engine.domain.answers import Answer, encode_runs
from engine.domain.ontology import Head, Kind, LabelTool, Ontology
from engine.ports import Picture

HEIGHT, WIDTH = 48, 96
TIME_BASE = Fraction(1, 1000)
FRAME_EVERY = 250  # ticks: four frames a second

ROAD = Head("road", Kind.MASK, ("road",))
LIGHT = Head("light", Kind.CHOICE, ("day", "night"))
DEPTH = Head("depth", Kind.DENSE_SCALAR, label_tool=LabelTool.MACHINE, unit="m")


def ontology(*heads: Head, version: int = 1) -> Ontology:
    return Ontology("roads", version, heads or (ROAD, LIGHT))


@dataclass(frozen=True)
class Scene:
    """What the camera of a drive sees, from `start` ticks after its beginning: all of it follows from the seed."""

    seed: int
    start: int = 0

    @property
    def night(self) -> bool:
        return self.seed % 2 == 1

    def picture(self, pts: int) -> Picture:
        rng = np.random.default_rng((self.seed, self.start + pts))
        rgb = np.where(self._road(pts)[..., None], [95, 95, 100], [70, 140, 60]) * (0.35 if self.night else 1.0)
        noisy = (rgb + rng.normal(0, 4, rgb.shape)).clip(0, 255).astype(np.uint8)
        return Picture(pts, WIDTH, HEIGHT, noisy.tobytes())

    def answers(self, pts: int) -> dict[str, Answer]:
        """The truth of every head."""
        mask = self._road(pts).astype(np.uint8)
        rows = np.arange(HEIGHT)[:, None] * np.ones((1, WIDTH))
        depth = io.BytesIO()
        np.save(depth, np.where(rows > 20, 300 / np.maximum(rows - 18, 1), np.nan).astype(np.float16))
        return {
            "road": Answer(Kind.MASK, {"size": [HEIGHT, WIDTH], "runs": encode_runs(mask.ravel().tolist())}),
            "light": Answer(Kind.CHOICE, {"choice": "night" if self.night else "day"}),
            "depth": Answer(Kind.DENSE_SCALAR, {"size": [HEIGHT, WIDTH]}, depth.getvalue()),
        }

    def film(self, path: Path, frames: int) -> list[int]:
        """Write the clip; returns the PTS of its frames."""
        pts = [index * FRAME_EVERY for index in range(frames)]
        encode_clip(path, (self.picture(at) for at in pts), TIME_BASE, b_frames=0, preset="ultrafast")
        return pts

    def _road(self, pts: int) -> np.ndarray:
        """(H, W) bool."""
        middle = WIDTH * (0.25 + 0.5 * np.random.default_rng(self.seed).random()) + 4 * np.sin((self.start + pts) / 700)
        rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
        road: np.ndarray = (rows > HEIGHT * 0.25) & (np.abs(columns - middle) < 12 + 0.6 * (rows - HEIGHT * 0.25))
        return road
