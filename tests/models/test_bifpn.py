from __future__ import annotations

import torch
from torch import nn

from models.bifpn import BiFPN, FastNormalisedFusion


def test_levels_keep_their_sizes_and_get_one_width() -> None:
    features = [torch.randn(2, c, h, w) for c, h, w in ((16, 36, 48), (24, 18, 24), (48, 9, 12), (96, 5, 6))]
    pyramid = BiFPN((16, 24, 48, 96), channels=32, layers=2)(features)
    assert [tuple(level.shape) for level in pyramid] == [
        (2, 32, 36, 48),
        (2, 32, 18, 24),
        (2, 32, 9, 12),
        (2, 32, 5, 6),
    ]


def test_every_level_hears_of_every_other() -> None:
    torch.manual_seed(0)
    neck = BiFPN((8, 8, 8, 8), channels=8, layers=1)
    features = [torch.randn(1, 8, 32 >> i, 32 >> i, requires_grad=True) for i in range(4)]
    for level in range(4):
        grads = torch.autograd.grad(neck(features)[level].square().sum(), features)
        assert all(float(grad.abs().sum()) > 0 for grad in grads)


def test_fusion_is_a_weighted_mean_and_a_negative_weight_counts_for_nothing() -> None:
    fusion = FastNormalisedFusion(3, 4)
    fusion.conv = nn.Identity()  # type: ignore[assignment]
    fusion.weights.data = torch.tensor([1.0, 3.0, -5.0])
    a, b, c = (torch.full((1, 4, 2, 2), value) for value in (4.0, 8.0, 1000.0))
    torch.testing.assert_close(fusion(a, b, c), torch.full((1, 4, 2, 2), 7.0), rtol=1e-3, atol=1e-3)
