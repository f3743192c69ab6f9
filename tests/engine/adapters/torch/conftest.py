"""A tiny training plan over drawn pictures: a driveable mask and a depth for each."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.domain.answers import Answer, encode_runs
from engine.domain.ontology import Head, Kind, LabelTool
from engine.ports import Picture, TrainingPlan, TrainingSample

HEIGHT, WIDTH = 48, 96


def _picture(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(H, W, 3) RGB and (H, W) mask: a grey road on green, somewhere else each time."""
    rng = np.random.default_rng(seed)
    middle = rng.uniform(0.3, 0.7) * WIDTH
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    mask = (rows > HEIGHT * 0.4) & (np.abs(columns - middle) < 4 + 0.7 * (rows - HEIGHT * 0.4))
    rgb = np.where(mask[..., None], [90, 90, 95], [60, 120, 60]) + rng.normal(0, 4, (HEIGHT, WIDTH, 3))
    return rgb.clip(0, 255).astype(np.uint8), mask.astype(np.uint8)


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


@pytest.fixture
def pictures() -> list[Picture]:
    return [Picture(seed, WIDTH, HEIGHT, _picture(seed)[0].tobytes()) for seed in range(100, 105)]


@pytest.fixture(scope="session")
def plan() -> Callable[..., TrainingPlan]:
    def make(**changes: Any) -> TrainingPlan:
        settings: dict[str, Any] = {
            "heads": (
                Head("driveable", Kind.MASK, ("road",)),
                Head("depth", Kind.DENSE_SCALAR, label_tool=LabelTool.MACHINE, unit="m"),
            ),
            "seed": 3,
            "steps": 6,
            "batch_size": 3,
            "height": HEIGHT,
            "width": WIDTH,
            "backbone": "shufflenet_v2_x0_5",
            "learning_rate": 2e-3,
            "checkpoint_every": 2,
            "threads": 1,
            "options": {"neck_width": 16, "neck_layers": 1, "head_width": 16},
        }
        return TrainingPlan(**{**settings, **changes})

    return make


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[TrainingSample]]:
    folder = tmp_path_factory.mktemp("pictures")

    def make(depth: float = 20.0) -> list[TrainingSample]:
        made = []
        for seed in range(4):
            rgb, mask = _picture(seed)
            path = folder / f"{seed}.png"
            Image.fromarray(rgb).save(path)
            labels = {
                "driveable": Answer(Kind.MASK, {"size": [HEIGHT, WIDTH], "runs": encode_runs(mask.tobytes())}),
                "depth": Answer(
                    Kind.DENSE_SCALAR, {"size": [12, 24]}, _npy(np.full((12, 24), depth + seed, dtype=np.float16))
                ),
            }
            made.append(TrainingSample(str(seed), path, labels))
        return made

    return make
