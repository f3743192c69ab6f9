"""BiFPN: a feature pyramid fused top-down and bottom-up with learned weights (EfficientDet, arXiv:1911.09070,
section 3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.layers import SeparableConv, group_norm


class FastNormalisedFusion(nn.Module):
    """sum(w_i * x_i) / (sum(w_i) + eps), w_i = relu(learned): the paper's equation 3.3, cheaper than a softmax."""

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(inputs))
        self.conv = SeparableConv(channels, channels)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Inputs of one shape (B, C, H, W) -> (B, C, H, W)."""
        weights = functional.relu(self.weights)
        weights = weights / (weights.sum() + 1e-4)
        fused = inputs[0] * weights[0]
        for weight, x in zip(weights[1:], inputs[1:], strict=True):
            fused = fused + weight * x
        return self.conv(fused)


class BiFPNLayer(nn.Module):
    """One pass down and one up. A node with a single input is left out; the ends have no second edge."""

    def __init__(self, levels: int, channels: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(FastNormalisedFusion(2, channels) for _ in range(levels - 1))
        self.up = nn.ModuleList(FastNormalisedFusion(2 if i == levels - 2 else 3, channels) for i in range(levels - 1))

    def forward(self, pyramid: list[Tensor]) -> list[Tensor]:
        """Levels (B, C, H_i, W_i), finest first -> the same shapes."""
        last = len(pyramid) - 1
        middle = list(pyramid)  # the top-down path; the coarsest level passes through
        for i in range(last - 1, -1, -1):
            coarser = functional.interpolate(middle[i + 1], size=pyramid[i].shape[-2:], mode="nearest")
            middle[i] = self.down[i](pyramid[i], coarser)
        out = [middle[0]]
        for i in range(1, last + 1):
            finer = functional.max_pool2d(out[i - 1], 3, stride=2, padding=1)
            edges = (pyramid[i], finer) if i == last else (pyramid[i], middle[i], finer)
            out.append(self.up[i - 1](*edges))
        return out


class BiFPN(nn.Module):
    """Trunk features to a pyramid of one width: lateral 1x1 convolutions, then `layers` BiFPN layers."""

    def __init__(self, channels_in: tuple[int, ...], channels: int, layers: int) -> None:
        super().__init__()
        self.lateral = nn.ModuleList(
            nn.Sequential(nn.Conv2d(c, channels, 1, bias=False), group_norm(channels)) for c in channels_in
        )
        self.layers = nn.ModuleList(BiFPNLayer(len(channels_in), channels) for _ in range(layers))

    def forward(self, features: list[Tensor]) -> list[Tensor]:
        """Features (B, C_i, H_i, W_i), finest first -> pyramid (B, channels, H_i, W_i), finest first."""
        pyramid = [lateral(x) for lateral, x in zip(self.lateral, features, strict=True)]
        for layer in self.layers:
            pyramid = layer(pyramid)
        return pyramid
