"""Pictures of a made-up road, and what a model would say of them."""

from __future__ import annotations

import io
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engine.domain.answers import Answer, encode_runs
from engine.domain.ontology import Kind

WIDTH, HEIGHT, FRAMES = 320, 160, 6


def picture(seed: int, at: int = 0, night: bool = False) -> NDArray[np.uint8]:
    """A road to the horizon with a car on it, (H, W, 3)."""
    shapes = scene(seed, at)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    horizon = shapes["horizon"]
    sky = np.stack([110 + y * 0.8, 150 + y * 0.6, 210 + y * 0.2], -1)
    ground = np.stack([70 + y * 0.25, 105 + y * 0.12, 60 + y * 0.1], -1)
    image = np.where((y < horizon)[..., None], sky, ground)
    depth = np.clip((y - horizon) / (HEIGHT - horizon), 0, 1)
    centre = shapes["vanishing"] + (WIDTH / 2 - shapes["vanishing"]) * depth
    road = (y >= horizon) & (np.abs(x - centre) < 8 + 170 * depth)
    image[road] = (88, 90, 95)
    for side in (-1, 1):
        image[(y >= horizon) & (np.abs(x - centre - side * (5 + 150 * depth)) < 1 + 3 * depth)] = (235, 235, 225)
    dashed = ((depth * 10 + at * 0.3) % 1 < 0.55) & (y >= horizon)
    image[dashed & (np.abs(x - centre) < 1 + 2 * depth)] = (240, 225, 140)
    for x0, y0, x1, y1 in shapes["cars"]:
        box = np.s_[int(y0 * HEIGHT) : int(y1 * HEIGHT), int(x0 * WIDTH) : int(x1 * WIDTH)]
        image[box] = ((seed * 53) % 160 + 40, (seed * 91) % 120 + 40, (seed * 29) % 160 + 60)
    x0, y0, x1, y1 = shapes["sign"]
    image[int(y0 * HEIGHT) : int(y1 * HEIGHT), int(x0 * WIDTH) : int(x1 * WIDTH)] = (190, 40, 40)
    image += np.random.default_rng(seed * 100 + at).normal(0, 5, image.shape)
    return np.clip(image * (0.28 if night else 1), 0, 255).astype(np.uint8)


def scene(seed: int, at: int) -> dict[str, Any]:
    """What is in the picture, as fractions of it."""
    rng = np.random.default_rng(seed)
    horizon = 58 + int(rng.integers(0, 14))
    vanishing = WIDTH / 2 + float(rng.uniform(-60, 60))
    x, y, size = float(rng.uniform(0.42, 0.6)), horizon / HEIGHT + 0.02, float(rng.uniform(0.08, 0.16)) + at * 0.006
    return {
        "horizon": horizon,
        "vanishing": vanishing,
        "cars": [(x, y, x + size, y + size * 1.3), (x - 0.28, y + 0.1, x - 0.28 + size, y + 0.1 + size * 1.3)],
        "sign": (0.86, 0.2, 0.91, 0.31),
    }


def answers(seed: int, at: int) -> dict[str, Answer]:
    """What a model would say of `picture(seed, at)`, in each kind's canonical form."""
    shapes = scene(seed, at)
    rows, columns = 40, 80
    y, x = (np.mgrid[0:rows, 0:columns] + 0.5) * 4
    depth = np.clip((y - shapes["horizon"]) / (HEIGHT - shapes["horizon"]), 0, 1)
    centre = shapes["vanishing"] + (WIDTH / 2 - shapes["vanishing"]) * depth
    mask = ((y >= shapes["horizon"]) & (np.abs(x - centre) < 8 + 165 * depth)).astype(np.uint8)
    metres = np.where(depth > 0, np.clip(1.4 / np.maximum(depth, 0.02), 2, 70), np.nan).astype(np.float16)
    packed = io.BytesIO()
    np.save(packed, metres)

    def lane(side: float) -> list[list[float]]:
        steps = np.linspace(0.04, 1, 9)
        across = shapes["vanishing"] + (WIDTH / 2 - shapes["vanishing"]) * steps + side * (5 + 150 * steps)
        down = shapes["horizon"] + (HEIGHT - shapes["horizon"]) * steps
        return [[float(np.clip(a / WIDTH, 0, 1)), float(b / HEIGHT)] for a, b in zip(across, down, strict=True)]

    cars = [
        {"id": str(n), "class": name, "box": [round(v, 4) for v in box], "score": score}
        for n, (box, name, score) in enumerate(zip(shapes["cars"], ("car", "truck"), (0.93, 0.48), strict=True))
    ]
    sign = {"id": "s", "class": "stop", "box": list(shapes["sign"]), "score": 0.71}
    return {
        "driveable": Answer(Kind.MASK, {"size": [rows, columns], "runs": encode_runs(mask.tobytes())}),
        "lanes": Answer(
            Kind.POLYLINES,
            {
                "lines": [
                    {"id": "l", "class": "solid", "points": lane(-1)},
                    {"id": "m", "class": "dashed", "points": lane(0)},
                    {"id": "r", "class": "solid", "points": lane(1), "score": 0.6},
                ]
            },
        ),
        "objects": Answer(Kind.BOXES, {"objects": cars}),
        "signs": Answer(Kind.BOXES, {"objects": [sign]}),
        "depth": Answer(Kind.DENSE_SCALAR, {"size": [rows, columns]}, packed.getvalue()),
    }


def video(pictures: list[NDArray[np.uint8]]) -> tuple[bytes, list[int]]:
    """An H.264 MP4 at 2 pictures a second, and the PTS that a decoder sees."""
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=2)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for image in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    out.seek(0)
    with av.open(out) as container:
        pts = sorted(packet.pts for packet in container.demux(video=0) if packet.pts is not None)
    return out.getvalue(), pts


def png(image: NDArray[np.uint8]) -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG")
    return out.getvalue()
