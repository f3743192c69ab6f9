"""Greedy k-center: the next pick is the point farthest from all that is labelled or picked already.

Sener & Savarese, "Active Learning for Convolutional Neural Networks: A Core-Set Approach" (arXiv:1708.00489),
Algorithm 1: a 2-approximation of the best cover. On unit embeddings, where |a - b|^2 = 2 - 2 a.b.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

_CHUNK = 4096
_DECIMALS = 9  # a matrix product's last bits depend on where a row stands; a pick must not


def greedy_k_center(embeddings: ArrayLike, centres: ArrayLike, k: int) -> tuple[list[int], list[float]]:
    """The `k` picks among `embeddings` (n, D) in order, and each one's distance to its nearest centre when picked.

    `centres` (L, D), L may be 0: then the first pick is index 0 (give the best candidate first) at distance 2, the
    diameter of the unit sphere. Equal distances go to the lower index. O((L + k) n D) time, O(n) memory beside the
    input. Raises ValueError when an embedding isn't finite or of unit length, or the widths differ.
    """
    points = unit_embeddings(embeddings)
    count = len(points)
    if k < 0:
        raise ValueError(f"can't pick {k}")
    if count == 0 or k == 0:
        return [], []
    known = np.asarray(centres, dtype=np.float64)
    nearest = np.full(count, -1.0)  # the highest similarity to any centre; -1 is the far pole
    if known.size:
        known = unit_embeddings(known)
        if known.shape[1] != points.shape[1]:
            raise ValueError(f"embeddings have {points.shape[1]} dimensions, centres {known.shape[1]}")
        for start in range(0, len(known), _CHUNK):
            block = np.round(points @ known[start : start + _CHUNK].T, _DECIMALS)
            np.maximum(nearest, block.max(axis=1), out=nearest)
    picks: list[int] = []
    distances: list[float] = []
    free = np.ones(count, dtype=bool)
    for _ in range(min(k, count)):
        index = int(np.argmin(np.where(free, nearest, np.inf)))
        picks.append(index)
        distances.append(float(np.sqrt(max(0.0, 2.0 - 2.0 * nearest[index]))))
        free[index] = False
        np.maximum(nearest, np.round(points @ points[index], _DECIMALS), out=nearest)
    return picks, distances


def unit_embeddings(embeddings: ArrayLike) -> NDArray[np.float64]:
    """`embeddings` as (n, D) float64 of exactly unit length.

    Raises ValueError unless each is finite and of unit length to 1% (what half precision leaves of it).
    """
    array = np.asarray(embeddings, dtype=np.float64)
    if array.size == 0:
        return array.reshape(0, array.shape[1] if array.ndim == 2 else 0)
    if array.ndim != 2:
        raise ValueError(f"embeddings must be (n, D), not {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("an embedding is not finite")
    lengths = np.linalg.norm(array, axis=1)
    if (np.abs(lengths - 1.0) > 1e-2).any():
        raise ValueError(f"embedding {int(np.argmax(np.abs(lengths - 1.0)))} is not of unit length")
    unit: NDArray[np.float64] = array / lengths[:, None]
    return unit
