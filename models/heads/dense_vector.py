"""Dense vectors: C numbers a cell with one Laplace scale (surface normals, velocity)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from models.heads.head import Decoded, Head, HeadSpec, LabelError
from models.layers import Tower
from models.losses import clamp_log_scale, laplace_nll
from models.targets import resize_nearest


@dataclass(frozen=True)
class DenseVectorLabel:
    grid: np.ndarray  # (h, w, C) float32 at the grid's size; NaN where there is none


@dataclass(frozen=True)
class DenseVectorOutputs:
    mean: Tensor  # (B, C, h, w), standardised
    log_scale: Tensor  # (B, 1, h, w), of the Laplace distribution, standardised


@dataclass(frozen=True)
class DenseVectorTargets:
    grid: Tensor  # (B, C, h, w) standardised; 0 where not valid
    valid: Tensor  # (B, 1, h, w) float


class DenseVectorHead(Head[DenseVectorLabel, DenseVectorOutputs, DenseVectorTargets]):
    """Laplace negative log likelihood a component. ``options``: `channels` (3), `unit_length` (true: answers are
    directions), `mirror_components` ([0]: those that change sign in a mirror; the first points to the right of
    the picture)."""

    spread: Tensor

    def __init__(self, spec: HeadSpec, size: tuple[int, int], channels: int, width: int) -> None:
        super().__init__(spec, size)
        self.components = int(spec.options.get("channels", 3))
        self.unit_length = bool(spec.options.get("unit_length", True))
        self.mirrored = [int(i) for i in spec.options.get("mirror_components", [0])]
        self.tower = Tower(channels, width, self.components + 1)
        self.register_buffer("spread", torch.ones(()))

    def parse(
        self, value: Mapping[str, Any], array: np.ndarray | None, annotated: Sequence[str] | None
    ) -> DenseVectorLabel:
        if array is None or array.ndim != 3 or list(array.shape[:2]) != list(value["size"]):
            raise LabelError("a dense vector needs an array of shape (height, width, components) equal to its size")
        if array.shape[2] != self.components:
            raise LabelError(f"the array has {array.shape[2]} components, the head {self.components}")
        grid = resize_nearest(array, self.grid).astype(np.float32)
        if np.isinf(grid).any():
            raise LabelError("the array holds an infinite number; NaN means that there is none")
        grid[np.isnan(grid).any(-1)] = np.nan
        return DenseVectorLabel(grid)

    def mirror(self, label: DenseVectorLabel) -> DenseVectorLabel:
        grid = label.grid[:, ::-1].copy()
        grid[..., self.mirrored] *= -1
        return DenseVectorLabel(grid)

    def learnable(self, label: DenseVectorLabel) -> bool:
        return bool(np.isfinite(label.grid).any())

    def fit_statistics(self, labels: Sequence[DenseVectorLabel]) -> None:
        if not self.unit_length:
            values = np.concatenate([label.grid[np.isfinite(label.grid)] for label in labels])
            self.spread.fill_(max(float(np.abs(values).mean()), 1e-3))

    def targets(self, labels: Sequence[DenseVectorLabel]) -> DenseVectorTargets:
        grid = torch.from_numpy(np.stack([label.grid.transpose(2, 0, 1) for label in labels]))
        valid = torch.isfinite(grid).all(1, keepdim=True)
        return DenseVectorTargets(torch.where(valid, grid / self.spread.cpu(), torch.zeros_like(grid)), valid.float())

    def forward(self, pyramid: list[Tensor]) -> DenseVectorOutputs:
        out = self.tower(pyramid[0])
        return DenseVectorOutputs(out[:, :-1], out[:, -1:])

    def loss(self, outputs: DenseVectorOutputs, targets: DenseVectorTargets) -> Tensor:
        log_scale = outputs.log_scale.expand_as(outputs.mean)
        return laplace_nll(outputs.mean, log_scale, targets.grid, targets.valid)

    def decode(self, outputs: DenseVectorOutputs) -> list[Decoded]:
        values = outputs.mean * self.spread
        if self.unit_length:
            values = functional.normalize(values, dim=1)
        arrays = values.clamp(-65000.0, 65000.0).permute(0, 2, 3, 1).cpu().numpy().astype(np.float16)
        return [Decoded({"size": list(self.grid)}, arrays[i]) for i in range(len(arrays))]

    def uncertainty(self, outputs: DenseVectorOutputs) -> Tensor:
        """Mean Laplace scale, in the label's unit."""
        return (clamp_log_scale(outputs.log_scale).exp() * self.spread).mean((1, 2, 3))
