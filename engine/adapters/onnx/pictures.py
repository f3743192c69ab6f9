"""Pictures as an ONNX model wants them, and where in its input each picture came to lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engine.adapters.onnx.declaration import InputSpec
from engine.ports import Picture


@dataclass(frozen=True)
class Placement:
    """The part of the input that the picture fills, in pixels of an input of `height` x `width`."""

    height: int
    width: int
    left: int
    top: int
    filled_width: int
    filled_height: int

    def crop(self, cells: NDArray[np.generic]) -> NDArray[np.generic]:
        """Of a map over the whole input, shape (..., h, w) at whatever size, the cells that lie in the picture."""
        rows, columns = cells.shape[-2] / self.height, cells.shape[-1] / self.width
        top, left = round(self.top * rows), round(self.left * columns)
        bottom = max(top + 1, round((self.top + self.filled_height) * rows))
        right = max(left + 1, round((self.left + self.filled_width) * columns))
        return cells[..., top:bottom, left:right]

    def fractions(self, boxes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Corners in pixels of the input, shape (N, 4), as fractions of the picture, cut off at its edges."""
        offset = np.array([self.left, self.top, self.left, self.top], dtype=np.float64)
        size = np.array([self.filled_width, self.filled_height] * 2, dtype=np.float64)
        return ((boxes - offset) / size).clip(0.0, 1.0)


def placed(picture: Picture, spec: InputSpec) -> tuple[NDArray[np.generic], Placement]:
    """One picture as (3, H, W) or (H, W, 3) of the declared type. Raises ValueError for one of too few bytes."""
    image = Image.frombytes("RGB", (picture.width, picture.height), picture.rgb)
    width, height, left, top = spec.width, spec.height, 0, 0
    if spec.fit == "letterbox":
        shrink = min(spec.width / picture.width, spec.height / picture.height)
        width = min(spec.width, max(1, round(picture.width * shrink)))
        height = min(spec.height, max(1, round(picture.height * shrink)))
        left, top = (spec.width - width) // 2, (spec.height - height) // 2
    cells: NDArray[np.uint8] = np.full((spec.height, spec.width, 3), spec.pad, dtype=np.uint8)
    cells[top : top + height, left : left + width] = np.asarray(
        image.resize((width, height), Image.Resampling.BILINEAR)
    )
    if spec.channels == "bgr":
        cells = cells[..., ::-1]
    values: NDArray[np.generic] = cells
    if spec.dtype != "uint8":
        mean, std = np.asarray(spec.mean, np.float32), np.asarray(spec.std, np.float32)
        scaled = (cells.astype(np.float32) * np.float32(spec.scale) - mean) / std
        values = scaled.astype(spec.dtype)
    if spec.layout == "nchw":
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values), Placement(spec.height, spec.width, left, top, width, height)
