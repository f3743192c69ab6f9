"""What every kind of head has in common: the calls it must answer, each on its own.

A kind is one file: how its label is read and mirrored, what the network must say for it (`targets`), the loss, the
answer in canonical form (`decode`) and how unsure the network is (`uncertainty`). Coordinates in a label are fractions
of the picture. The grid is the pyramid's finest level, at a stride of 4 pixels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from torch import Tensor, nn

GRID_STRIDE = 4

Label = TypeVar("Label")
Outputs = TypeVar("Outputs")
Targets = TypeVar("Targets")


class LabelError(ValueError):
    """A label that its head can't learn from; the message says what is wrong with it."""


@dataclass(frozen=True)
class HeadSpec:
    """A head as the ontology declares it. `document` keeps what the network doesn't need but others do."""

    name: str
    kind: str
    classes: tuple[str, ...] = ()
    unit: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    document: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> HeadSpec:
        return cls(
            name=document["name"],
            kind=document["kind"],
            classes=tuple(document.get("classes", ())),
            unit=document.get("unit"),
            options=dict(document.get("options") or {}),
            document=dict(document),
        )

    def to_document(self) -> dict[str, Any]:
        own = {"name": self.name, "kind": self.kind, "classes": list(self.classes), "unit": self.unit}
        return {**self.document, **own, "options": dict(self.options)}

    def class_index(self, name: str) -> int:
        if name not in self.classes:
            raise LabelError(f"no class {name!r}; there are {', '.join(self.classes)}")
        return self.classes.index(name)

    def mirrored_classes(self) -> tuple[int, ...]:
        """For each class, the class it becomes in a mirror: `options["mirror_classes"]` pairs left with right."""
        pairs = dict(self.options.get("mirror_classes", {}))
        pairs.update({b: a for a, b in pairs.items()})
        return tuple(self.classes.index(pairs.get(name, name)) for name in self.classes)


@dataclass(frozen=True)
class Decoded:
    """An answer in its kind's canonical form; `array` is float16 for dense kinds and None for the others."""

    value: dict[str, Any]
    array: np.ndarray | None = None


class Head(nn.Module, ABC, Generic[Label, Outputs, Targets]):
    """One task of the network. `size` is the picture's (height, width) in pixels, `grid` the finest level's in
    cells."""

    def __init__(self, spec: HeadSpec, size: tuple[int, int]) -> None:
        super().__init__()
        self.spec = spec
        self.size = size
        self.grid = (size[0] // GRID_STRIDE, size[1] // GRID_STRIDE)

    @abstractmethod
    def parse(self, value: Mapping[str, Any], array: np.ndarray | None, annotated: Sequence[str] | None) -> Label:
        """A canonical label to tensors. `annotated` are the classes that were looked for; None: all. Raises
        LabelError."""

    @abstractmethod
    def mirror(self, label: Label) -> Label:
        """The label of the picture mirrored left to right."""

    @abstractmethod
    def learnable(self, label: Label) -> bool:
        """Does the label say anything? One that is ignored everywhere doesn't."""

    @abstractmethod
    def targets(self, labels: Sequence[Label]) -> Targets:
        """What the outputs should be for these labels; a dataclass of tensors, batched in order."""

    @abstractmethod
    def forward(self, pyramid: list[Tensor]) -> Outputs:
        """Pyramid levels (B, C, H_i, W_i), finest first, to this kind's outputs."""

    @abstractmethod
    def loss(self, outputs: Outputs, targets: Targets) -> Tensor:
        """A scalar, normalised over the frames given alone: leave unlabelled frames out before you call."""

    @abstractmethod
    def decode(self, outputs: Outputs) -> list[Decoded]:
        """One canonical answer a frame."""

    @abstractmethod
    def uncertainty(self, outputs: Outputs) -> Tensor:
        """(B,), non-negative, growing as the network is less sure of the frame."""

    def classes_answered(self) -> int:
        """How many classes the last layer answers for; 0 for a kind that has none."""
        return 0

    def output_bias(self) -> None:
        """Set the biases that the head should start from; called once, after all weights are initialised."""

    def fit_statistics(self, labels: Sequence[Label]) -> None:
        """Take what a regression needs from the labels before the first step (its offset and spread)."""


def annotated_mask(spec: HeadSpec, annotated: Sequence[str] | None) -> list[bool]:
    """(K,): was each class looked for? Raises LabelError for a class that the head doesn't have."""
    if annotated is None:
        return [True] * len(spec.classes)
    for name in annotated:
        spec.class_index(name)
    return [name in annotated for name in spec.classes]
