"""Choice: one class for the whole picture (weather, road type)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from models.heads.head import Decoded, Head, HeadSpec, annotated_mask


@dataclass(frozen=True)
class ChoiceLabel:
    index: int
    annotated: tuple[bool, ...]


@dataclass(frozen=True)
class ChoiceOutputs:
    logits: Tensor  # (B, K)


@dataclass(frozen=True)
class ChoiceTargets:
    index: Tensor  # (B,) int64
    considered: Tensor  # (B, K) bool: the classes that were looked for, and the one chosen


class ChoiceHead(Head[ChoiceLabel, ChoiceOutputs, ChoiceTargets]):
    """Softmax over the mean of the two coarsest levels. A class that was not looked for is left out of the softmax."""

    def __init__(self, spec: HeadSpec, size: tuple[int, int], channels: int, width: int) -> None:
        super().__init__(spec, size)
        self.hidden = nn.Linear(2 * channels, width)
        self.out = nn.Linear(width, len(spec.classes))

    def parse(self, value: Mapping[str, Any], array: np.ndarray | None, annotated: Sequence[str] | None) -> ChoiceLabel:
        return ChoiceLabel(self.spec.class_index(value["choice"]), tuple(annotated_mask(self.spec, annotated)))

    def mirror(self, label: ChoiceLabel) -> ChoiceLabel:
        table = self.spec.mirrored_classes()
        return ChoiceLabel(table[label.index], tuple(label.annotated[other] for other in table))

    def learnable(self, label: ChoiceLabel) -> bool:
        return True

    def targets(self, labels: Sequence[ChoiceLabel]) -> ChoiceTargets:
        index = torch.tensor([label.index for label in labels])
        considered = torch.tensor([label.annotated for label in labels])
        return ChoiceTargets(index, considered | functional.one_hot(index, len(self.spec.classes)).bool())

    def forward(self, pyramid: list[Tensor]) -> ChoiceOutputs:
        pooled = torch.cat([level.mean((2, 3)) for level in pyramid[-2:]], dim=1)  # (B, 2C)
        return ChoiceOutputs(self.out(functional.relu(self.hidden(pooled))))

    def output_bias(self) -> None:
        nn.init.kaiming_normal_(self.hidden.weight, nonlinearity="relu")

    def classes_answered(self) -> int:
        return self.out.out_features

    def loss(self, outputs: ChoiceOutputs, targets: ChoiceTargets) -> Tensor:
        return functional.cross_entropy(outputs.logits.masked_fill(~targets.considered, -1e9), targets.index)

    def decode(self, outputs: ChoiceOutputs) -> list[Decoded]:
        answers = []
        for row in outputs.logits.softmax(1).cpu().tolist():
            best = max(range(len(row)), key=row.__getitem__)
            probabilities = {name: round(p, 5) for name, p in zip(self.spec.classes, row, strict=True)}
            answers.append(
                Decoded(
                    {"choice": self.spec.classes[best], "score": round(row[best], 5), "probabilities": probabilities}
                )
            )
        return answers

    def uncertainty(self, outputs: ChoiceOutputs) -> Tensor:
        """Entropy of the softmax, in nats."""
        log_p = functional.log_softmax(outputs.logits, dim=1)
        return -(log_p.exp() * log_p).sum(1)
