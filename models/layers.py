"""The few layers that neck and heads are built from. Everything is normalised by groups, never by batch."""

from __future__ import annotations

import math

from torch import Tensor, nn


def group_norm(channels: int) -> nn.GroupNorm:
    """GroupNorm (arXiv:1803.08494) with up to 8 groups: a frame's features never depend on the frames beside it."""
    return nn.GroupNorm(math.gcd(channels, 8), channels)


class SeparableConv(nn.Module):
    """Depthwise 3x3, pointwise, norm, activation. (B, C_in, H, W) -> (B, C_out, H, W)."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels_in, channels_in, 3, padding=1, groups=channels_in, bias=False)
        self.pointwise = nn.Conv2d(channels_in, channels_out, 1, bias=False)
        self.norm = group_norm(channels_out)
        self.activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.norm(self.pointwise(self.depthwise(x))))


class Tower(nn.Module):
    """A head's own layers over one pyramid level, then one 1x1 convolution. (B, C, H, W) -> (B, out, H, W)."""

    def __init__(self, channels: int, width: int, out: int, depth: int = 2) -> None:
        super().__init__()
        self.body = nn.Sequential(*(SeparableConv(channels if i == 0 else width, width) for i in range(depth)))
        self.out = nn.Conv2d(width, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.body(x))

    def start_from(self, value: float, channels: slice = slice(None)) -> None:
        """Set the bias of some output channels."""
        if self.out.bias is not None:
            self.out.bias.data[channels] = value


def initialise(module: nn.Module) -> None:
    """One place initialises all weights: He's normal, fan-out; fan-in for depthwise convolutions, whose fan-out would
    count channels that they don't reach.
    """
    for child in module.modules():
        if isinstance(child, nn.Conv2d):
            depthwise = child.groups > 1
            nn.init.kaiming_normal_(child.weight, mode="fan_in" if depthwise else "fan_out", nonlinearity="relu")
            if child.bias is not None:
                nn.init.zeros_(child.bias)
        elif isinstance(child, nn.Linear):
            nn.init.normal_(child.weight, std=0.01)
            if child.bias is not None:
                nn.init.zeros_(child.bias)
        elif isinstance(child, nn.GroupNorm):
            nn.init.ones_(child.weight)
            nn.init.zeros_(child.bias)
    for child in module.modules():
        if isinstance(child, Tower):
            # Small, so that a head starts near its bias, which it sets after this. But with 0.01 the trunk's gradient
            # was a hundredth of the last layer's, and some seeds stayed on a plateau for hundreds of steps.
            nn.init.normal_(child.out.weight, std=0.1)
