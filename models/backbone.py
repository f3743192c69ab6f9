"""The shared trunk: a torchvision classifier without its classifier, giving features at strides 4, 8, 16 and 32.

RegNet (arXiv:2003.13678) by default; MobileNetV3-small (arXiv:1905.02244) and ShuffleNetV2 (arXiv:1807.11164) for CPU
and tests. Always from random weights: nothing is fetched.
"""

from __future__ import annotations

from torch import Tensor, nn
from torchvision.models import mobilenet_v3_small, regnet_y_400mf, shufflenet_v2_x0_5

from models.layers import group_norm

STRIDES = (4, 8, 16, 32)


class Backbone(nn.Module):
    """Four stages in a row. `channels` are those of their outputs, finest first."""

    def __init__(self, stages: list[nn.Module], channels: tuple[int, int, int, int]) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.channels = channels

    def forward(self, pictures: Tensor) -> list[Tensor]:
        """(B, 3, H, W) -> four features (B, C_i, ceil(H / s), ceil(W / s)) for s in STRIDES."""
        features = []
        x = pictures
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


def build_backbone(name: str) -> Backbone:
    """A trunk by torchvision's name. Raises ValueError for one that we don't have."""
    if name not in BACKBONES:
        raise ValueError(f"no backbone {name!r}; there are {', '.join(sorted(BACKBONES))}")
    backbone = BACKBONES[name]()
    _replace_batch_norm(backbone)
    return backbone


def _regnet() -> Backbone:
    net = regnet_y_400mf(weights=None)
    blocks = list(net.trunk_output.children())
    return Backbone([nn.Sequential(net.stem, blocks[0]), *blocks[1:]], (48, 104, 208, 440))


def _mobilenet() -> Backbone:
    # The last 1x1 convolution (to 576 channels) serves only the classifier.
    blocks = list(mobilenet_v3_small(weights=None).features.children())
    cuts = ((0, 2), (2, 4), (4, 9), (9, 12))
    return Backbone([nn.Sequential(*blocks[a:b]) for a, b in cuts], (16, 24, 48, 96))


def _shufflenet() -> Backbone:
    net = shufflenet_v2_x0_5(weights=None)
    return Backbone([nn.Sequential(net.conv1, net.maxpool), net.stage2, net.stage3, net.stage4], (24, 48, 96, 192))


BACKBONES = {"regnet_y_400mf": _regnet, "mobilenet_v3_small": _mobilenet, "shufflenet_v2_x0_5": _shufflenet}


def _replace_batch_norm(module: nn.Module) -> None:
    """Swap every BatchNorm for a GroupNorm: batch statistics would carry unlabelled frames into labelled ones, and
    MobileNetV3's momentum of 0.01 leaves evaluation on stale statistics after a short run."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, group_norm(child.num_features))
        else:
            _replace_batch_norm(child)
