"""Pictures in: one way to decode and resize, the same for training and for scoring."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def resize_picture(image: Image.Image, height: int, width: int) -> Tensor:
    """Any RGB picture -> (3, height, width) uint8, stretched to the size; area-averaged where it shrinks."""
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.array(image, dtype=np.uint8)).permute(2, 0, 1).contiguous()


def read_picture(path: Path, height: int, width: int) -> Tensor:
    """A PNG or JPEG -> (3, height, width) uint8. Raises OSError (also for what isn't a picture)."""
    with Image.open(path) as image:
        return resize_picture(image.convert("RGB"), height, width)


def picture_from_rgb(rgb: bytes, source_width: int, source_height: int, height: int, width: int) -> Tensor:
    """C-ordered RGB bytes -> (3, height, width) uint8. Raises ValueError when the bytes don't fill the picture."""
    return resize_picture(Image.frombytes("RGB", (source_width, source_height), rgb), height, width)
