"""Masks: one class a pixel, background included (driveable area, free space)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from models.heads.head import Decoded, Head, HeadSpec, LabelError, annotated_mask
from models.layers import Tower
from models.losses import marginal_cross_entropy
from models.targets import grid_to_runs, resize_nearest, runs_to_grid

IGNORE = 255


@dataclass(frozen=True)
class MaskLabel:
    grid: np.ndarray  # (H, W) uint8: 0 background, i + 1 class i, 255 ignore
    annotated: tuple[bool, ...]


@dataclass(frozen=True)
class MaskOutputs:
    logits: Tensor  # (B, K + 1, H / 4, W / 4)


@dataclass(frozen=True)
class MaskTargets:
    grid: Tensor  # (B, H, W) int64
    hidden: Tensor  # (B, K + 1) bool: what a background pixel may truly be


class MaskHead(Head[MaskLabel, MaskOutputs, MaskTargets]):
    """Per-pixel softmax over background and classes, at stride 4, brought to the picture's size by bilinear
    interpolation."""

    def __init__(self, spec: HeadSpec, size: tuple[int, int], channels: int, width: int) -> None:
        super().__init__(spec, size)
        self.tower = Tower(channels, width, len(spec.classes) + 1)

    def parse(self, value: Mapping[str, Any], array: np.ndarray | None, annotated: Sequence[str] | None) -> MaskLabel:
        height, width = value["size"]
        grid = runs_to_grid(value["runs"], (height, width))
        if ((grid > len(self.spec.classes)) & (grid != IGNORE)).any():
            raise LabelError(f"the mask names an index over {len(self.spec.classes)}")
        return MaskLabel(resize_nearest(grid, self.size), tuple(annotated_mask(self.spec, annotated)))

    def mirror(self, label: MaskLabel) -> MaskLabel:
        table = np.arange(256, dtype=np.uint8)
        for i, other in enumerate(self.spec.mirrored_classes()):
            table[i + 1] = other + 1
        annotated = tuple(label.annotated[other] for other in self.spec.mirrored_classes())
        return MaskLabel(table[label.grid[:, ::-1]], annotated)

    def learnable(self, label: MaskLabel) -> bool:
        return bool((label.grid != IGNORE).any()) and (
            any(label.annotated) or bool(((label.grid > 0) & (label.grid != IGNORE)).any())
        )

    def targets(self, labels: Sequence[MaskLabel]) -> MaskTargets:
        grid = torch.from_numpy(np.stack([label.grid for label in labels]).astype(np.int64))
        hidden = torch.tensor([[True, *(not looked for looked in label.annotated)] for label in labels])
        return MaskTargets(grid, hidden)

    def forward(self, pyramid: list[Tensor]) -> MaskOutputs:
        return MaskOutputs(self.tower(pyramid[0]))

    def classes_answered(self) -> int:
        return self.tower.out.out_channels - 1

    def loss(self, outputs: MaskOutputs, targets: MaskTargets) -> Tensor:
        logits = functional.interpolate(outputs.logits, size=self.size, mode="bilinear", align_corners=False)
        return marginal_cross_entropy(logits, targets.grid, targets.hidden, IGNORE)

    def decode(self, outputs: MaskOutputs) -> list[Decoded]:
        logits = functional.interpolate(outputs.logits, size=self.size, mode="bilinear", align_corners=False)
        best = logits.argmax(1).to(torch.uint8).cpu().numpy()
        return [Decoded({"size": list(self.size), "runs": grid_to_runs(grid)}) for grid in best]

    def uncertainty(self, outputs: MaskOutputs) -> Tensor:
        """Mean entropy over the cells that touch a predicted boundary; over all cells where there is none."""
        log_p = functional.log_softmax(outputs.logits, dim=1)
        entropy = -(log_p.exp() * log_p).sum(1)  # (B, h, w)
        best = outputs.logits.argmax(1, keepdim=True).float()
        high = functional.max_pool2d(best, 3, stride=1, padding=1)
        low = -functional.max_pool2d(-best, 3, stride=1, padding=1)
        band = (high != low).squeeze(1).float()
        count = band.sum((1, 2))
        return torch.where(count > 0, (entropy * band).sum((1, 2)) / count.clamp(min=1), entropy.mean((1, 2)))
