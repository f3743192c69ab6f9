"""HydraNet: one trunk, a pyramid over it, and a head for each task of the ontology. Read top to bottom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.backbone import build_backbone
from models.bifpn import BiFPN
from models.heads.head import GRID_STRIDE, Head, HeadSpec
from models.heads.kinds import build_head
from models.layers import initialise

EMBEDDING = 128
EMBEDDING_SEED = 20_190_416  # the projection is the same for every network with as many trunk channels


@dataclass(frozen=True)
class HydraNetConfig:
    """All that is needed to build the network again. `height` and `width` are the picture's, in pixels, multiples of
    4."""

    heads: tuple[HeadSpec, ...]
    backbone: str = "regnet_y_400mf"
    height: int = 96
    width: int = 192
    neck_width: int = 64
    neck_layers: int = 2
    head_width: int = 64

    def __post_init__(self) -> None:
        if not self.heads:
            raise ValueError("the network needs at least one head")
        if self.height % GRID_STRIDE or self.width % GRID_STRIDE or min(self.height, self.width) < 32:
            raise ValueError(
                f"height and width must be multiples of {GRID_STRIDE} from 32, not {self.height}x{self.width}"
            )

    def to_document(self) -> dict[str, Any]:
        return {
            "format": "hydranet-safetensors",
            "heads": [head.to_document() for head in self.heads],
            "backbone": self.backbone,
            "height": self.height,
            "width": self.width,
            "neck_width": self.neck_width,
            "neck_layers": self.neck_layers,
            "head_width": self.head_width,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> HydraNetConfig:
        """From `to_document`, or from a training's config.json, whose `options` may set the widths."""
        options = document.get("options") or {}
        sizes = {
            name: int(document.get(name, options.get(name, getattr(cls, name))))
            for name in ("height", "width", "neck_width", "neck_layers", "head_width")
        }
        heads = tuple(HeadSpec.from_document(head) for head in document["heads"])
        return cls(heads=heads, backbone=document.get("backbone", cls.backbone), **sizes)


@dataclass(frozen=True)
class Features:
    """What the shared part says of B pictures: trunk features and pyramid, finest first, each level (B, C_i, H_i,
    W_i)."""

    trunk: list[Tensor]
    pyramid: list[Tensor]


class HydraNet(nn.Module):
    """Pictures (B, 3, H, W) float, as `normalise` gives them."""

    embedding_projection: Tensor
    embedding_mean: Tensor
    embedding_spread: Tensor

    def __init__(self, config: HydraNetConfig) -> None:
        super().__init__()
        self.config = config
        size = (config.height, config.width)
        self.backbone = build_backbone(config.backbone)
        self.neck = BiFPN(self.backbone.channels, config.neck_width, config.neck_layers)
        self.heads = nn.ModuleDict(
            {spec.name: build_head(spec, size, config.neck_width, config.head_width) for spec in config.heads}
        )
        initialise(self)
        for head in self.heads.values():
            head.output_bias()  # type: ignore[operator]
        pooled = sum(self.backbone.channels)
        generator = torch.Generator().manual_seed(EMBEDDING_SEED)
        projection = torch.randn(EMBEDDING, pooled, generator=generator) / EMBEDDING**0.5
        self.register_buffer("embedding_projection", projection)
        self.register_buffer("embedding_mean", torch.zeros(pooled))
        self.register_buffer("embedding_spread", torch.ones(pooled))

    def head(self, name: str) -> Head[Any, Any, Any]:
        return self.heads[name]  # type: ignore[return-value]

    def features(self, pictures: Tensor) -> Features:
        """The shared part, which runs once however many heads there are."""
        trunk = self.backbone(pictures)
        return Features(trunk, self.neck(trunk))

    def forward(self, pictures: Tensor) -> dict[str, Any]:
        """Every head's outputs for every picture, by head."""
        pyramid = self.features(pictures).pyramid
        return {name: head(pyramid) for name, head in self.heads.items()}

    def pooled(self, trunk: list[Tensor]) -> Tensor:
        """Trunk features -> (B, sum of channels): each channel's mean over the picture."""
        return torch.cat([level.mean((2, 3)) for level in trunk], dim=1)

    def embedding(self, trunk: list[Tensor]) -> Tensor:
        """Trunk features -> (B, 128), each of unit length: pooled, standardised by the statistics of the training
        pictures (else what all pictures share hides what tells them apart), and projected by a fixed random
        matrix."""
        standard = (self.pooled(trunk) - self.embedding_mean) / self.embedding_spread
        return functional.normalize(standard @ self.embedding_projection.T, dim=1)

    @torch.no_grad()
    def fit_embedding(self, batches: Iterable[Tensor]) -> None:
        """Take the embedding's mean and spread from pictures (B, 3, H, W), normalised; two pictures or more in all."""
        pooled = torch.cat([self.pooled(self.backbone(pictures)) for pictures in batches])
        if len(pooled) > 1:
            self.embedding_mean.copy_(pooled.mean(0))
            self.embedding_spread.copy_(pooled.std(0).clamp(min=1e-4))


def normalise(pictures: Tensor) -> Tensor:
    """uint8 (or float in [0, 255]) RGB (B, 3, H, W) -> float32 with about zero mean and unit spread."""
    return (pictures.float() - 114.0) / 64.0
