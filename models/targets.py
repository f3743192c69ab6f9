"""Geometry of targets: run lengths, resizing of label grids, and cells of the grid. Numpy in, numpy out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np


def runs_to_grid(runs: Sequence[Sequence[int]], size: tuple[int, int]) -> np.ndarray:
    """``[[index, length], ...]`` row-major -> (H, W) uint8. Raises ValueError when the lengths don't add up."""
    pairs = np.asarray(runs, dtype=np.int64).reshape(-1, 2)
    if (
        pairs[:, 1].sum() != size[0] * size[1]
        or (pairs[:, 1] < 1).any()
        or not ((pairs >= 0).all() and (pairs[:, 0] < 256).all())
    ):
        raise ValueError(f"the runs don't cover {size[0]}x{size[1]} cells")
    return np.repeat(pairs[:, 0].astype(np.uint8), pairs[:, 1]).reshape(size)


def grid_to_runs(grid: np.ndarray) -> list[list[int]]:
    """(H, W) of small integers -> ``[[index, length], ...]`` row-major."""
    flat = grid.reshape(-1)
    starts = np.concatenate(([0], np.flatnonzero(flat[1:] != flat[:-1]) + 1))
    lengths = np.diff(np.concatenate((starts, [flat.size])))
    return [[int(index), int(length)] for index, length in zip(flat[starts], lengths, strict=True)]


def resize_nearest(grid: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """(H, W, ...) -> (size, ...), each cell taken from the source cell that holds its centre: labels are never
    blended."""
    rows = ((np.arange(size[0]) + 0.5) * grid.shape[0] / size[0]).astype(np.int64)
    columns = ((np.arange(size[1]) + 0.5) * grid.shape[1] / size[1]).astype(np.int64)
    return grid[rows[:, None], columns[None, :]]


def cell_centres(grid: tuple[int, int]) -> np.ndarray:
    """(H, W, 2): x and y of each cell's centre, in cells."""
    ys, xs = np.mgrid[0 : grid[0], 0 : grid[1]]
    return np.stack((xs, ys), axis=-1).astype(np.float32) + 0.5


def cells_near_polyline(points: np.ndarray, grid: tuple[int, int], reach: int) -> np.ndarray:
    """(H, W) bool: every cell within `reach` cells of a polyline (P, 2), and some beyond; a few times cheaper than
    distances."""
    near = np.zeros(grid, dtype=bool)
    steps = range(-reach - 1, reach + 2)
    square = np.array([(x, y) for y in steps for x in steps])
    for a, b in pairwise(points):
        count = int(np.hypot(*(b - a))) + 2
        along = np.floor(np.linspace(a, b, count)).astype(np.int64)  # no two more than a cell apart
        cells = (along[:, None] + square[None]).reshape(-1, 2)
        inside = (cells >= 0).all(1) & (cells[:, 0] < grid[1]) & (cells[:, 1] < grid[0])
        near[cells[inside, 1], cells[inside, 0]] = True
    return near


def nearest_on_polyline(points: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """The point of a polyline (P, 2) nearest to each of `cells` (N, 2) -> (N, 2) float32."""
    first, along = points[:-1, None], np.diff(points, axis=0)[:, None]  # (P - 1, 1, 2)
    length = np.maximum((along**2).sum(-1), 1e-12)  # a segment without length is its first point
    t = np.clip(((cells[None] - first) * along).sum(-1) / length, 0.0, 1.0)
    candidates = first + t[..., None] * along  # (P - 1, N, 2)
    best = ((candidates - cells[None]) ** 2).sum(-1).argmin(0)
    return candidates[best, np.arange(len(cells))].astype(np.float32)
