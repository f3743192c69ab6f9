"""For every kind: the truth as perfect outputs decodes to the truth, mirrored twice it is itself, mirrored once it
is mirrored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from models.heads.boxes import BoxesOutputs
from models.heads.choice import ChoiceOutputs
from models.heads.dense_scalar import DenseScalarOutputs
from models.heads.dense_vector import DenseVectorOutputs
from models.heads.head import Decoded, HeadSpec
from models.heads.kinds import HEAD_KINDS, build_head
from models.heads.mask import MaskOutputs
from models.heads.polylines import PolylinesOutputs
from models.hydranet import HydraNet
from models.targets import grid_to_runs, runs_to_grid

Scene = Callable[[int], tuple[Any, dict[str, dict[str, Any]], dict[str, np.ndarray]]]
HEAD_OF = {
    "mask": "driveable",
    "polylines": "lanes",
    "boxes": "objects",
    "dense_scalar": "depth",
    "dense_vector": "normals",
    "choice": "weather",
}


def logit(p: torch.Tensor) -> torch.Tensor:
    return torch.logit(p.clamp(1e-4, 1 - 1e-4))


def perfect(kind: str, targets: Any) -> Any:
    """The outputs of a network that says exactly its targets."""
    if kind == "mask":
        one_hot = torch.nn.functional.one_hot(targets.grid[:, 2::4, 2::4], 3).permute(0, 3, 1, 2)
        return MaskOutputs(one_hot.float() * 10)
    if kind == "polylines":
        return PolylinesOutputs(logit(targets.heat), targets.offset, targets.start, torch.zeros_like(targets.start))
    if kind == "boxes":
        return BoxesOutputs(logit(targets.heat), targets.box, torch.zeros_like(targets.box[:, :2]))
    if kind == "dense_scalar":
        return DenseScalarOutputs(targets.grid, torch.full_like(targets.grid, -3))
    if kind == "dense_vector":
        return DenseVectorOutputs(targets.grid, torch.full_like(targets.valid, -3))
    return ChoiceOutputs(torch.nn.functional.one_hot(targets.index, 2).float() * 10)


def decode_truth(net: HydraNet, kind: str, label: Any) -> Decoded:
    head = net.head(HEAD_OF[kind])
    return head.decode(perfect(kind, head.targets([label])))[0]


def distance_to_line(points: np.ndarray, line: np.ndarray) -> float:
    along = line[1] - line[0]
    t = np.clip((points - line[0]) @ along / (along @ along), 0, 1)
    return float(np.abs(points - (line[0] + t[:, None] * along)).max())


def assert_same(kind: str, decoded: Decoded, value: dict[str, Any], array: np.ndarray | None) -> None:
    if kind == "mask":
        found = runs_to_grid(decoded.value["runs"], tuple(decoded.value["size"])) == 1
        true = runs_to_grid(value["runs"], tuple(value["size"])) == 1
        assert (found & true).sum() / (found | true).sum() > 0.9  # a grid of 4 pixels cuts corners
    elif kind == "boxes":
        assert len(decoded.value["objects"]) == len(value["objects"])
        for found, true in zip(decoded.value["objects"], value["objects"], strict=True):
            assert found["class"] == true["class"]
            assert found["box"] == pytest.approx(true["box"], abs=1e-3)
    elif kind == "polylines":
        assert sorted(line["class"] for line in decoded.value["lines"]) == sorted(
            line["class"] for line in value["lines"]
        )
        for true in value["lines"]:
            found = next(line for line in decoded.value["lines"] if line["class"] == true["class"])
            points, line = np.array(found["points"]), np.array(true["points"])
            assert distance_to_line(points, line) < 0.02
            assert np.abs(points[0] - line[0]).max() < 0.06
            assert np.abs(points[-1] - line[-1]).max() < 0.06
    elif kind == "choice":
        assert decoded.value["choice"] == value["choice"]
        assert decoded.value["score"] > 0.99
    else:
        assert array is not None
        assert decoded.array is not None
        assert decoded.array.dtype == np.float16
        assert list(decoded.array.shape[:2]) == decoded.value["size"]
        true = array[2::4, 2::4].astype(np.float32)
        there = np.isfinite(true)
        assert decoded.array[there].astype(np.float32) == pytest.approx(true[there], rel=5e-3, abs=5e-3)


@pytest.mark.parametrize("kind", sorted(HEAD_KINDS))
def test_truth_decodes_to_truth(net: HydraNet, scene: Scene, kind: str) -> None:
    name = HEAD_OF[kind]
    for seed in range(5):
        _, values, arrays = scene(seed)
        label = net.head(name).parse(values[name], arrays.get(name), None)
        net.head(name).fit_statistics([label])
        assert_same(kind, decode_truth(net, kind, label), values[name], arrays.get(name))


@pytest.mark.parametrize("kind", sorted(HEAD_KINDS))
def test_mirrored_truth_decodes_to_mirrored_truth(net: HydraNet, scene: Scene, kind: str) -> None:
    name = HEAD_OF[kind]
    _, values, arrays = scene(3)
    head = net.head(name)
    label = head.parse(values[name], arrays.get(name), None)
    head.fit_statistics([label])
    value, array = values[name], arrays.get(name)
    if kind == "mask":
        flipped = runs_to_grid(value["runs"], tuple(value["size"]))[:, ::-1]
        value = {"size": value["size"], "runs": grid_to_runs(flipped)}
    elif kind == "boxes":
        value = {
            "objects": [
                {**o, "box": [1 - o["box"][2], o["box"][1], 1 - o["box"][0], o["box"][3]]} for o in value["objects"]
            ]
        }
    elif kind == "polylines":
        value = {"lines": [{**line, "points": [[1 - x, y] for x, y in line["points"]]} for line in value["lines"]]}
    elif array is not None:
        array = array[:, ::-1].copy()
        if kind == "dense_vector":
            array[..., 0] *= -1
    assert_same(kind, decode_truth(net, kind, head.mirror(label)), value, array)


@pytest.mark.parametrize("kind", sorted(HEAD_KINDS))
def test_mirror_twice_is_the_label(net: HydraNet, scene: Scene, kind: str) -> None:
    name = HEAD_OF[kind]
    _, values, arrays = scene(7)
    head = net.head(name)
    label = head.parse(values[name], arrays.get(name), None)
    once, twice = head.mirror(label), head.mirror(head.mirror(label))
    for part, there, back in zip(vars(label), vars(label).values(), vars(twice).values(), strict=True):
        np.testing.assert_allclose(np.asarray(there), np.asarray(back), atol=1e-6, err_msg=part)
    if kind != "choice":
        assert any(
            not np.array_equal(np.asarray(a), np.asarray(b))
            for a, b in zip(vars(label).values(), vars(once).values(), strict=True)
        )


def test_left_and_right_swap_in_a_mirror() -> None:
    spec = HeadSpec("turn", "choice", ("left", "right", "straight"), options={"mirror_classes": {"left": "right"}})
    head = build_head(spec, (32, 32), 8, 8)
    turned = {name: head.mirror(head.parse({"choice": name}, None, None)).index for name in spec.classes}
    assert {name: spec.classes[index] for name, index in turned.items()} == {
        "left": "right",
        "right": "left",
        "straight": "straight",
    }


@pytest.mark.parametrize("kind", sorted(HEAD_KINDS))
def test_uncertainty_grows_as_the_head_is_less_sure(net: HydraNet, scene: Scene, kind: str) -> None:
    name = HEAD_OF[kind]
    _, values, arrays = scene(1)
    head = net.head(name)
    label = head.parse(values[name], arrays.get(name), None)
    sure = perfect(kind, head.targets([label]))
    blurred = {
        part: tensor * 0.3 if part in ("heat", "logits") else tensor + 1.5 if part == "log_scale" else tensor
        for part, tensor in vars(sure).items()
    }
    before, after = head.uncertainty(sure), head.uncertainty(type(sure)(**blurred))
    assert before.shape == (1,)
    assert 0 <= float(before) < float(after)
