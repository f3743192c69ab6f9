from __future__ import annotations

import math

import pytest
import torch

from models.losses import binary_entropy, generalised_iou, heatmap_focal, laplace_nll


def test_laplace_scale_settles_at_the_mean_error() -> None:
    torch.manual_seed(0)
    target = torch.distributions.Laplace(2.0, 0.7).sample((4000,))
    mean, log_scale = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.Adam([mean, log_scale], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        laplace_nll(mean.expand(4000), log_scale.expand(4000), target, torch.ones(4000)).backward()
        optimizer.step()
    assert mean.item() == pytest.approx(2.0, abs=0.06)
    assert math.exp(log_scale.item()) == pytest.approx(0.7, rel=0.06)


def test_laplace_loss_counts_weighted_cells_alone() -> None:
    mean = torch.zeros(2, requires_grad=True)
    laplace_nll(mean, torch.zeros(2), torch.tensor([1.0, 9.0]), torch.tensor([1.0, 0.0])).backward()
    assert mean.grad is not None
    assert mean.grad.tolist() == [-1.0, 0.0]


@pytest.mark.parametrize(
    ("other", "expected"),
    [([0, 0, 2, 2], 1.0), ([0, 0, 1, 2], 0.5), ([2, 0, 4, 2], 0.0), ([4, 0, 6, 2], -1 / 3)],
)
def test_generalised_iou_of_known_boxes(other: list[float], expected: float) -> None:
    box = torch.tensor([0.0, 0.0, 2.0, 2.0])
    assert generalised_iou(box, torch.tensor(other, dtype=torch.float32)).item() == pytest.approx(expected, abs=1e-5)


def test_focal_loss_of_the_truth_is_near_nothing_and_of_its_reverse_is_large() -> None:
    heat = torch.zeros(1, 1, 4, 4)
    heat[0, 0, 1, 2] = 1.0
    logits, weights = torch.where(heat > 0, 8.0, -8.0), torch.ones_like(heat)
    assert heatmap_focal(logits, heat, weights).item() < 1e-3
    assert heatmap_focal(-logits, heat, weights).item() > 8
    assert heatmap_focal(-logits, heat, weights * 0).item() == 0


def test_binary_entropy_peaks_at_a_half() -> None:
    assert binary_entropy(torch.tensor([0.0, 0.5, 1.0])).tolist() == pytest.approx([0.0, math.log(2), 0.0], abs=1e-4)
