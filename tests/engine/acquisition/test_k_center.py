import itertools

import numpy as np
import pytest

from engine.acquisition.k_center import greedy_k_center, unit_embeddings


def points(count: int, seed: int, width: int = 8) -> np.ndarray:
    raw = np.random.default_rng(seed).normal(size=(count, width))
    return raw / np.linalg.norm(raw, axis=1, keepdims=True)


def radius(embeddings: np.ndarray, centres: np.ndarray) -> float:
    return float(np.linalg.norm(embeddings[:, None] - centres[None], axis=-1).min(axis=1).max())


def test_each_pick_is_the_farthest_from_all_centres() -> None:
    embeddings, labelled = points(60, 0), points(5, 1)
    picks, distances = greedy_k_center(embeddings, labelled, 10)
    centres = labelled
    for pick, distance in zip(picks, distances, strict=True):
        apart = np.linalg.norm(embeddings[:, None] - centres[None], axis=-1).min(axis=1)
        assert distance == pytest.approx(apart.max(), abs=1e-4)
        assert apart[pick] == pytest.approx(apart.max(), abs=1e-4)
        centres = np.concatenate([centres, embeddings[pick : pick + 1]])
    assert distances == sorted(distances, reverse=True)


def test_the_cover_is_within_twice_the_best() -> None:
    embeddings = points(14, 3, width=3)
    picks, _ = greedy_k_center(embeddings, np.empty((0, 3)), 3)
    best = min(radius(embeddings, embeddings[list(c)]) for c in itertools.combinations(range(14), 3))
    assert radius(embeddings, embeddings[picks]) <= 2 * best + 1e-9


def test_without_centres_the_first_given_comes_first() -> None:
    picks, distances = greedy_k_center(points(5, 4), [], 2)
    assert picks[0] == 0
    assert distances[0] == 2.0


def test_what_is_labelled_already_comes_last() -> None:
    embeddings = points(6, 5)
    picks, distances = greedy_k_center(embeddings, embeddings[[2]], 6)
    assert picks[-1] == 2
    assert distances[-1] == pytest.approx(0.0, abs=1e-4)
    assert sorted(picks) == list(range(6))


def test_bad_embeddings_are_refused() -> None:
    with pytest.raises(ValueError, match="unit length"):
        unit_embeddings([[3.0, 4.0]])
    with pytest.raises(ValueError, match="not finite"):
        unit_embeddings([[float("nan"), 1.0]])
    with pytest.raises(ValueError, match="dimensions"):
        greedy_k_center(points(3, 0, 4), points(3, 0, 5), 1)
    assert greedy_k_center(points(3, 0), [], 0) == ([], [])
