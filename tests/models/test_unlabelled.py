"""Unlabelled is never empty: not through a loss, not through batch statistics, not through another head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from models.hydranet import HydraNet, normalise
from models.loader import Batch
from models.losses import heatmap_focal, marginal_cross_entropy
from models.train import head_losses

CPU = torch.device("cpu")
Scene = Callable[[int], tuple[Any, dict[str, dict[str, Any]], dict[str, np.ndarray]]]


def batch_of(net: HydraNet, scene: Scene, seeds: list[int], labelled: dict[str, list[int]]) -> Batch:
    """Scenes in a batch; `labelled` gives, by head, the places that have a label."""
    pictures, labels = [], {name: [] for name in labelled}
    for place, seed in enumerate(seeds):
        picture, values, arrays = scene(seed)
        pictures.append(torch.from_numpy(np.array(picture)).permute(2, 0, 1))
        for name in labelled:
            if place in labelled[name]:
                labels[name].append(net.head(name).parse(values[name], arrays.get(name), None))
    return Batch(normalise(torch.stack(pictures)), labelled, labels)


def gradients(module: torch.nn.Module) -> list[float]:
    return [0.0 if p.grad is None else float(p.grad.abs().sum()) for p in module.parameters()]


def test_a_heads_loss_reaches_its_own_layers_and_the_trunk_alone(net: HydraNet, scene: Scene) -> None:
    everywhere = {name: [0, 1] for name in net.heads}
    for name in net.heads:
        net.zero_grad()
        head_losses(net, batch_of(net, scene, [0, 1], everywhere), CPU)[name].backward()
        for other in net.heads:
            assert (sum(gradients(net.head(other))) > 0) == (other == name)
        assert sum(gradients(net.backbone)) > 0


def test_a_head_without_labels_is_skipped_and_gets_no_gradient(net: HydraNet, scene: Scene) -> None:
    losses = head_losses(net, batch_of(net, scene, [0, 1], {"driveable": [0, 1]}), CPU)
    assert set(losses) == {"driveable"}
    losses["driveable"].backward()
    assert all(sum(gradients(net.head(name))) == 0 for name in net.heads if name != "driveable")


def test_unlabelled_frames_change_neither_loss_nor_gradient(net: HydraNet, scene: Scene) -> None:
    net.train()
    two = {name: [0, 1] for name in net.heads}
    outcomes = []
    for seeds in ([0, 1], [0, 1, 2, 3, 4]):
        net.zero_grad()
        losses = head_losses(net, batch_of(net, scene, seeds, two), CPU)
        torch.stack(list(losses.values())).sum().backward()
        outcomes.append(({name: float(loss.detach()) for name, loss in losses.items()}, gradients(net)))
    assert outcomes[0][0] == pytest.approx(outcomes[1][0], rel=1e-4)
    assert outcomes[0][1] == pytest.approx(outcomes[1][1], rel=1e-2, abs=1e-4)


def test_ignored_pixels_give_no_mask_loss() -> None:
    logits = torch.randn(1, 3, 4, 4, requires_grad=True)
    target = torch.full((1, 4, 4), 255)
    target[0, 0] = 1
    marginal_cross_entropy(logits, target, torch.tensor([[True, False, False]]), 255).backward()
    assert logits.grad is not None
    assert logits.grad[0, :, 0].abs().sum() > 0
    assert logits.grad[0, :, 1:].abs().sum() == 0


def test_background_costs_nothing_where_a_class_that_was_not_annotated_is_predicted() -> None:
    target = torch.zeros(1, 4, 4, dtype=torch.int64)
    logits = torch.zeros(1, 3, 4, 4)
    logits[:, 2] = 12.0
    looked_for_both = marginal_cross_entropy(logits, target, torch.tensor([[True, False, False]]), 255)
    looked_for_first = marginal_cross_entropy(logits, target, torch.tensor([[True, False, True]]), 255)
    assert float(looked_for_both) > 10
    assert float(looked_for_first) == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize(("name", "absent"), [("objects", "person"), ("lanes", "dashed")])
def test_a_class_that_was_not_annotated_gets_no_gradient(net: HydraNet, scene: Scene, name: str, absent: str) -> None:
    _, values, _ = scene(0)
    head = net.head(name)
    value = {key: [item for item in items if item["class"] != absent] for key, items in values[name].items()}
    annotated = [c for c in head.spec.classes if c != absent]
    for looked_for, expect in ((annotated, False), (None, True)):
        targets = head.targets([head.parse(value, None, looked_for)])
        logits = torch.zeros_like(targets.heat, requires_grad=True)
        heatmap_focal(logits, targets.heat, targets.heat_weight).backward()
        assert logits.grad is not None
        assert bool(logits.grad[0, head.spec.class_index(absent)].abs().sum() > 0) is expect


def test_an_ignored_region_gives_no_box_loss(net: HydraNet) -> None:
    head = net.head("objects")
    label = head.parse({"objects": [], "ignore": [[0.0, 0.0, 0.5, 1.0]]}, None, None)
    targets = head.targets([label])
    logits = torch.zeros_like(targets.heat, requires_grad=True)
    heatmap_focal(logits, targets.heat, targets.heat_weight).backward()
    assert logits.grad is not None
    half = head.grid[1] // 2
    assert logits.grad[..., :half].abs().sum() == 0
    assert bool((logits.grad[..., half:] > 0).all())


def test_the_embedding_has_unit_length_and_needs_no_head(net: HydraNet, scene: Scene) -> None:
    pictures = batch_of(net, scene, [0, 1, 2, 3], {}).pictures
    net.fit_embedding([pictures])
    embedding = net.embedding(net.backbone(pictures)).detach()
    assert embedding.shape == (4, 128)
    assert embedding.norm(dim=1).tolist() == pytest.approx([1.0] * 4, abs=1e-5)
    likeness = embedding @ embedding.T
    assert float(likeness[~torch.eye(4, dtype=torch.bool)].max()) < 0.9
