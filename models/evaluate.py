"""Batched inference from weights and config: answers, uncertainty and embedding, picture by picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.checkpoint import load_weights
from models.heads.head import Decoded
from models.hydranet import HydraNet, HydraNetConfig, normalise


@dataclass(frozen=True)
class Inference:
    """What the network says of one picture. `embedding` has 128 numbers and unit length."""

    answers: Mapping[str, Decoded]
    uncertainty: Mapping[str, float]
    embedding: tuple[float, ...]


def load_network(weights: Path, config: Mapping[str, Any]) -> HydraNet:
    """Ready to answer. Raises ValueError for a config that can't be built, RuntimeError for weights that don't fit
    it."""
    net = HydraNet(HydraNetConfig.from_document(config))
    net.load_state_dict(load_weights(weights))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return net.to(device).eval()


@torch.inference_mode()
def infer(net: HydraNet, pictures: Sequence[Tensor], batch_size: int = 16) -> list[Inference]:
    """Pictures (3, H, W) uint8 at the network's size, answered in order."""
    found: list[Inference] = []
    device = next(net.parameters()).device
    for first in range(0, len(pictures), batch_size):
        features = net.features(normalise(torch.stack(list(pictures[first : first + batch_size])).to(device)))
        embeddings = net.embedding(features.trunk).cpu().tolist()
        answers: dict[str, list[Decoded]] = {}
        uncertainty: dict[str, list[float]] = {}
        for name in net.heads:
            head = net.head(name)
            outputs = head(features.pyramid)
            answers[name] = head.decode(outputs)
            uncertainty[name] = head.uncertainty(outputs).cpu().tolist()
        for i, embedding in enumerate(embeddings):
            found.append(
                Inference(
                    {name: given[i] for name, given in answers.items()},
                    {name: given[i] for name, given in uncertainty.items()},
                    tuple(embedding),
                )
            )
    return found


@torch.inference_mode()
def embed(net: HydraNet, pictures: Sequence[Tensor], batch_size: int = 16) -> list[tuple[float, ...]]:
    """The embeddings alone: the trunk runs, no neck and no head."""
    found: list[tuple[float, ...]] = []
    device = next(net.parameters()).device
    for first in range(0, len(pictures), batch_size):
        trunk = net.backbone(normalise(torch.stack(list(pictures[first : first + batch_size])).to(device)))
        found.extend(tuple(row) for row in net.embedding(trunk).cpu().tolist())
    return found
