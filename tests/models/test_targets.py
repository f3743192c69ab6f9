from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from models.targets import (
    cell_centres,
    cells_near_polyline,
    grid_to_runs,
    nearest_on_polyline,
    resize_nearest,
    runs_to_grid,
)


def test_runs_and_grid_are_each_others_reverse() -> None:
    grid = np.random.default_rng(0).integers(0, 3, (7, 11)).astype(np.uint8)
    runs = grid_to_runs(grid)
    assert all(a[0] != b[0] for a, b in pairwise(runs))
    np.testing.assert_array_equal(runs_to_grid(runs, (7, 11)), grid)


@pytest.mark.parametrize("runs", [[[0, 5]], [[0, 7]], [[0, -1], [1, 7]], [[256, 6]], []])
def test_runs_that_do_not_fit_are_rejected(runs: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="2x3"):
        runs_to_grid(runs, (2, 3))


def test_labels_are_never_blended() -> None:
    grid = np.array([[0, 2], [255, 1]], dtype=np.uint8)
    np.testing.assert_array_equal(resize_nearest(resize_nearest(grid, (8, 6)), (2, 2)), grid)
    assert set(np.unique(resize_nearest(grid, (5, 7)))) == {0, 1, 2, 255}


def test_nearest_point_of_a_corner() -> None:
    line = np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 4.0]], dtype=np.float32)
    cells = np.array([[2.0, 1.0], [6.0, 2.0], [5.0, -1.0], [-3.0, 0.0]], dtype=np.float32)
    np.testing.assert_allclose(nearest_on_polyline(line, cells), [[2, 0], [4, 2], [4, 0], [0, 0]])


def test_cells_near_a_line_hold_all_within_reach() -> None:
    rng = np.random.default_rng(1)
    grid = (24, 48)
    centres = cell_centres(grid).reshape(-1, 2)
    for _ in range(20):
        line = (rng.uniform(-0.2, 1.2, (4, 2)) * (48, 24)).astype(np.float32)
        distance = np.sqrt(((nearest_on_polyline(line, centres) - centres) ** 2).sum(-1)).reshape(grid)
        assert cells_near_polyline(line, grid, reach=3)[distance <= 3].all()
