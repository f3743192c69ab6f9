"""Augmentation: a mirror, in which each kind of label moves with the picture, and light that changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.hydranet import HydraNet


def mirror(net: HydraNet, picture: Tensor, labels: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """A picture (3, H, W) and its labels by head, left to right."""
    return picture.flip(-1), {name: net.head(name).mirror(label) for name, label in labels.items()}


def change_light(picture: Tensor, rng: np.random.Generator) -> Tensor:
    """Contrast, brightness, saturation and gamma, and sensor noise at times: (3, H, W) in [0, 255] -> the same,
    float32."""
    x = picture.float() / 255.0
    x = x ** float(np.exp(rng.uniform(-0.3, 0.3)))
    grey = x.mean(0, keepdim=True)
    x = grey + (x - grey) * float(rng.uniform(0.6, 1.4))
    middle = x.mean()
    x = (x - middle) * float(rng.uniform(0.7, 1.3)) + middle + float(rng.uniform(-0.12, 0.12))
    if rng.random() < 0.3:
        noise = rng.standard_normal(tuple(x.shape), dtype=np.float32)
        x = x + torch.from_numpy(noise) * float(rng.uniform(0, 0.04))
    return x.clamp(0, 1) * 255.0
