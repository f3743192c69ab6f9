"""What must hold before a run spends its budget. A run that fails here is refused: going again wouldn't help."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from models.hydranet import HydraNet
from models.loader import Sample


class Refused(ValueError):
    """The run can't go on; the message says why and what to change."""


def check_samples(net: HydraNet, samples: Sequence[Sample], labelled: Mapping[str, Sequence[int]]) -> None:
    """The dataset isn't empty, every head of the samples is one of ours, and every head has a label to learn from."""
    if not samples:
        raise Refused("the dataset is empty")
    named = {name for sample in samples for name in sample.labels}
    unknown = sorted(named - set(net.heads))
    if unknown:
        raise Refused(f"the samples are labelled for heads that the network lacks: {', '.join(unknown)}")
    for name in net.heads:
        if not labelled[name]:
            raise Refused(f"head {name!r} has no labelled sample that says anything; label some, or leave the head out")


def check_optimizer(net: HydraNet, optimizer: torch.optim.Optimizer) -> None:
    """Every trainable parameter is in the optimizer, once."""
    held = [id(p) for group in optimizer.param_groups for p in group["params"]]
    missing = [name for name, p in net.named_parameters() if p.requires_grad and id(p) not in held]
    if missing or len(held) != len(set(held)):
        raise Refused(f"the optimizer must hold every parameter once; it lacks {missing or 'none, but has doubles'}")


def check_class_counts(net: HydraNet) -> None:
    """A head answers for as many classes as it declares."""
    for name in net.heads:
        head = net.head(name)
        if head.classes_answered() != len(head.spec.classes):
            raise Refused(
                f"head {name!r} declares {len(head.spec.classes)} classes, answers for {head.classes_answered()}"
            )


def check_losses(losses: Mapping[str, float], moment: str) -> None:
    """Every loss is a finite number."""
    for name, value in losses.items():
        if not math.isfinite(value):
            raise Refused(f"the loss of head {name!r} {moment} is {value}: look at its labels for numbers out of range")
