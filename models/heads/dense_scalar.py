"""Dense scalars: one number a cell with its Laplace scale (depth, in the log domain)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.heads.head import Decoded, Head, HeadSpec, LabelError
from models.layers import Tower
from models.losses import clamp_log_scale, laplace_nll
from models.targets import resize_nearest


@dataclass(frozen=True)
class DenseScalarLabel:
    grid: np.ndarray  # (h, w) float32 in the learning domain, at the grid's size; NaN where there is none


@dataclass(frozen=True)
class DenseScalarOutputs:
    mean: Tensor  # (B, h, w), standardised
    log_scale: Tensor  # (B, h, w), of the Laplace distribution, standardised


@dataclass(frozen=True)
class DenseScalarTargets:
    grid: Tensor  # (B, h, w) standardised; 0 where not valid
    valid: Tensor  # (B, h, w) float


class DenseScalarHead(Head[DenseScalarLabel, DenseScalarOutputs, DenseScalarTargets]):
    """Laplace negative log likelihood, on logarithms where the unit is a length (or ``options["log"]`` says so), so
    that an error counts relative to the distance. The offset and spread of the labels are kept in buffers beside
    the weights."""

    offset: Tensor
    spread: Tensor

    def __init__(self, spec: HeadSpec, size: tuple[int, int], channels: int, width: int) -> None:
        super().__init__(spec, size)
        self.log = bool(spec.options.get("log", spec.unit == "m"))
        self.tower = Tower(channels, width, 2)
        self.register_buffer("offset", torch.zeros(()))
        self.register_buffer("spread", torch.ones(()))

    def parse(
        self, value: Mapping[str, Any], array: np.ndarray | None, annotated: Sequence[str] | None
    ) -> DenseScalarLabel:
        if array is None or array.ndim != 2 or list(array.shape) != list(value["size"]):
            raise LabelError("a dense scalar needs an array of shape (height, width) equal to its size")
        grid = resize_nearest(array, self.grid).astype(np.float32)
        if np.isinf(grid).any():
            raise LabelError("the array holds an infinite number; NaN means that there is none")
        if self.log:
            if (grid <= 0).any():
                raise LabelError("a number learned by its logarithm must be over 0; NaN means that there is none")
            grid = np.log(grid)
        return DenseScalarLabel(grid)

    def mirror(self, label: DenseScalarLabel) -> DenseScalarLabel:
        return DenseScalarLabel(label.grid[:, ::-1])

    def learnable(self, label: DenseScalarLabel) -> bool:
        return bool(np.isfinite(label.grid).any())

    def fit_statistics(self, labels: Sequence[DenseScalarLabel]) -> None:
        values = np.concatenate([label.grid[np.isfinite(label.grid)] for label in labels])
        self.offset.fill_(float(np.median(values)))
        self.spread.fill_(max(float(np.abs(values - np.median(values)).mean()), 1e-3))

    def targets(self, labels: Sequence[DenseScalarLabel]) -> DenseScalarTargets:
        grid = torch.from_numpy(np.stack([label.grid for label in labels]))
        valid = torch.isfinite(grid)
        standard = (grid - self.offset.cpu()) / self.spread.cpu()
        return DenseScalarTargets(torch.where(valid, standard, torch.zeros_like(grid)), valid.float())

    def forward(self, pyramid: list[Tensor]) -> DenseScalarOutputs:
        out = self.tower(pyramid[0])
        return DenseScalarOutputs(out[:, 0], out[:, 1])

    def loss(self, outputs: DenseScalarOutputs, targets: DenseScalarTargets) -> Tensor:
        return laplace_nll(outputs.mean, outputs.log_scale, targets.grid, targets.valid)

    def decode(self, outputs: DenseScalarOutputs) -> list[Decoded]:
        values = outputs.mean * self.spread + self.offset
        values = values.exp() if self.log else values
        arrays = values.clamp(-65000.0, 65000.0).cpu().numpy().astype(np.float16)
        return [Decoded({"size": list(self.grid)}, arrays[i]) for i in range(len(arrays))]

    def uncertainty(self, outputs: DenseScalarOutputs) -> Tensor:
        """Mean Laplace scale: of the logarithm (so relative) where the head learns logarithms, else in the head's
        unit."""
        return (clamp_log_scale(outputs.log_scale).exp() * self.spread).mean((1, 2))
