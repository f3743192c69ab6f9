"""Small drawn scenes with a label for every kind of head, and training folders made of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from models.heads.head import HeadSpec
from models.hydranet import HydraNet, HydraNetConfig
from models.targets import grid_to_runs

HEIGHT, WIDTH = 48, 96

HEADS: list[dict[str, Any]] = [
    {"name": "driveable", "kind": "mask", "classes": ["road", "verge"]},
    {"name": "lanes", "kind": "polylines", "classes": ["solid", "dashed"]},
    {"name": "objects", "kind": "boxes", "classes": ["car", "person"]},
    {"name": "depth", "kind": "dense_scalar", "unit": "m"},
    {"name": "normals", "kind": "dense_vector"},
    {"name": "weather", "kind": "choice", "classes": ["dry", "wet"]},
]


def _scene(seed: int) -> tuple[Image.Image, dict[str, dict[str, Any]], dict[str, np.ndarray]]:
    """A picture, its label values by head, and the arrays of the dense heads."""
    rng = np.random.default_rng(seed)
    wet = bool(rng.random() < 0.5)
    horizon = int(HEIGHT * rng.uniform(0.3, 0.45))
    picture = Image.new("RGB", (WIDTH, HEIGHT), (90, 120, 200) if not wet else (120, 120, 125))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, horizon, WIDTH, HEIGHT), fill=(60, 110, 50))
    foot, top = rng.uniform(0.35, 0.65) * WIDTH, rng.uniform(0.4, 0.6) * WIDTH
    road = [(top - 6, horizon), (top + 6, horizon), (foot + 34, HEIGHT - 1), (foot - 34, HEIGHT - 1)]
    draw.polygon(road, fill=(80, 80, 85))
    mask = Image.new("L", (WIDTH, HEIGHT))
    ImageDraw.Draw(mask).polygon(road, fill=1)
    lines = []
    for number, offset in enumerate((-0.6, 0.6)):
        a, b = (foot + offset * 34, HEIGHT - 1.0), (top + offset * 6, horizon + 2.0)
        draw.line((a, b), fill=(240, 240, 240), width=2)
        points = [[float(np.clip(x / WIDTH, 0, 1)), y / HEIGHT] for x, y in (a, b)]
        lines.append({"id": str(number), "class": ("solid", "dashed")[number], "points": points})
    x, y, size = rng.uniform(12, WIDTH - 30), rng.uniform(horizon, HEIGHT - 16), rng.uniform(8, 14)
    box = [x, y, x + size * 1.3, y + size]
    draw.rectangle(box, fill=(220, 30, 30))
    rows = np.arange(HEIGHT)[:, None] * np.ones((1, WIDTH))
    depth = np.where(rows > horizon, np.minimum(200.0 / np.maximum(rows - horizon, 1), 80.0), np.nan)
    normals = np.zeros((HEIGHT, WIDTH, 3), np.float16)
    normals[..., 1] = np.where(rows > horizon, -0.8, 0.0)
    normals[..., 0] = np.where(rows > horizon, 0.6, 1.0)
    cells = np.array(mask)
    values: dict[str, dict[str, Any]] = {
        "driveable": {"size": [HEIGHT, WIDTH], "runs": grid_to_runs(cells)},
        "lanes": {"lines": lines},
        "objects": {
            "objects": [
                {"id": "a", "class": "car", "box": [box[0] / WIDTH, box[1] / HEIGHT, box[2] / WIDTH, box[3] / HEIGHT]}
            ]
        },
        "depth": {"size": [HEIGHT, WIDTH]},
        "normals": {"size": [HEIGHT, WIDTH]},
        "weather": {"choice": "wet" if wet else "dry"},
    }
    return picture, values, {"depth": depth.astype(np.float16), "normals": normals}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def scene() -> Callable[[int], tuple[Image.Image, dict[str, dict[str, Any]], dict[str, np.ndarray]]]:
    return _scene


@pytest.fixture
def net() -> HydraNet:
    """Every kind of head on the smallest trunk, from a fixed seed."""
    torch.manual_seed(0)
    specs = tuple(HeadSpec.from_document(head) for head in HEADS)
    return HydraNet(
        HydraNetConfig(specs, "shufflenet_v2_x0_5", HEIGHT, WIDTH, neck_width=16, neck_layers=1, head_width=16)
    )


@pytest.fixture
def make_folder(tmp_path: Path) -> Callable[..., Path]:
    """make_folder(name, count, heads=…, labelled=…, **config) lays a training folder out, as the trainer does."""

    def make(
        name: str,
        count: int,
        heads: tuple[str, ...] = ("driveable", "depth"),
        labelled: Callable[[int, str], bool] = lambda index, head: True,
        **config: Any,
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        lines = []
        for index in range(count):
            picture, values, arrays = _scene(index)
            picture.save(folder / f"{index}.png")
            labels = {}
            for head in heads:
                if not labelled(index, head):
                    continue
                array = None
                if head in arrays:
                    array = f"{index}-{head}.npy"
                    np.save(folder / array, arrays[head])
                labels[head] = {"value": values[head], "array": array}
            lines.append({"id": str(index), "picture": f"{index}.png", "labels": labels, "annotated_classes": {}})
        (folder / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        document = {
            "heads": [head for head in HEADS if head["name"] in heads],
            "seed": 0,
            "steps": 4,
            "batch_size": 4,
            "height": HEIGHT,
            "width": WIDTH,
            "backbone": "shufflenet_v2_x0_5",
            "learning_rate": 2e-3,
            "checkpoint_every": 2,
            "threads": 1,
            "warm_start": None,
            "options": {"neck_width": 16, "neck_layers": 1, "head_width": 16},
        }
        document.update(config)
        (folder / "config.json").write_text(json.dumps(document))
        return folder

    return make
