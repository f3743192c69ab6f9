"""Embeddings of 128 numbers and unit length: of a model's own features, or of the picture where it has none."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engine.ports import Picture

DIMENSIONS = 128
_ROWS, _COLUMNS = 8, 16


def thumbnail_embedding(picture: Picture) -> tuple[float, ...]:
    """How the picture looks from far away: its brightness on 8 x 16 cells, without its mean.

    It knows night from day and a town from a field, not what is in a picture. A picture of one brightness all over
    gets the first axis.
    """
    image = Image.frombytes("RGB", (picture.width, picture.height), picture.rgb).convert("L")
    cells = np.asarray(image.resize((_COLUMNS, _ROWS), Image.Resampling.BOX), dtype=np.float64).ravel()
    return _unit(cells - cells.mean())


def feature_embedding(features: NDArray[np.floating]) -> tuple[float, ...]:
    """Of one picture's features, shape (D,) or (D, h, w), which is averaged over its cells.

    Another D than 128 is brought to it by a fixed random projection, which keeps distances about as they were
    (Johnson and Lindenstrauss, 1984). Features that are not finite give NaN.
    """
    values = np.asarray(features, dtype=np.float64)
    values = values.reshape(values.shape[0], -1).mean(1)
    if not np.isfinite(values).all():
        return (float("nan"),) * DIMENSIONS
    if len(values) != DIMENSIONS:
        values = values @ _projection(len(values))
    return _unit(values)


@lru_cache(maxsize=8)
def _projection(dimensions: int) -> NDArray[np.float64]:
    return np.random.default_rng(dimensions).normal(size=(dimensions, DIMENSIONS)) / np.sqrt(DIMENSIONS)


def _unit(values: NDArray[np.float64]) -> tuple[float, ...]:
    length = float(np.linalg.norm(values))
    if length < 1e-9:
        return (1.0, *(0.0,) * (DIMENSIONS - 1))
    return tuple(float(value) for value in values / length)
