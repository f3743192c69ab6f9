"""What is wrong with an ONNX file is said when it is registered, and nothing of it runs with our privileges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import SQUARES, build, constant, road_declared, road_model, square_detector, squares_declared
from road_scenes import DEPTH, LIGHT, ROAD

from engine.adapters.onnx.check import CheckLimits, OnnxCheck
from engine.domain.formats import ModelFormat
from engine.domain.ontology import Head
from engine.domain.refusals import Invalid
from engine.ports import ModelFiles

Check = Callable[..., None]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    def look(
        model: onnx.ModelProto | bytes, config: dict[str, Any], *heads: Head, limits: CheckLimits | None = None
    ) -> None:
        path = tmp_path / "model.onnx"
        path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
        OnnxCheck(limits).check(ModelFiles(ModelFormat.ONNX, path, config, heads=heads))

    return look


def refused(check: Check, model: Any, config: dict[str, Any], *heads: Head, **more: Any) -> str:
    with pytest.raises(Invalid) as refusal:
        check(model, config, *heads, **more)
    assert refusal.value.hint
    return f"{refusal.value.detail}; {refusal.value.hint}"


def test_what_fits_passes(check: Check) -> None:
    check(square_detector(), squares_declared(), SQUARES)
    check(road_model(), road_declared(), ROAD, LIGHT)


def test_no_onnx_file_is_refused(check: Check) -> None:
    for content in (b"", b"not a model", b"\x80\x04pickle" * 100, b"ORTM" + bytes(200)):
        assert "no ONNX model" in refused(check, content, squares_declared(), SQUARES)


def test_external_data_is_refused_wherever_it_hides(check: Check, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(np.float32(0.7).tobytes())
    outside = square_detector()
    tensor = next(t for t in outside.graph.initializer if t.name == "threshold")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    assert "'threshold' lies in another file" in refused(check, outside, squares_declared(), SQUARES)
    inside = square_detector()
    branch = helper.make_graph([helper.make_node("Constant", [], ["c"], value=tensor)], "branch", [], [])
    inside.graph.node.append(helper.make_node("If", ["flag"], ["d"], then_branch=branch, else_branch=branch))
    assert "external data" in refused(check, inside, squares_declared(), SQUARES)


def test_operators_that_are_not_standard_are_refused(check: Check) -> None:
    model = square_detector()
    model.graph.node[4].domain = "com.example.mine"
    assert "operator 'Sigmoid' of 'com.example.mine'" in refused(check, model, squares_declared(), SQUARES)
    unknown = square_detector()
    unknown.graph.node[4].op_type = "Mystery"
    assert "Mystery" in refused(check, unknown, squares_declared(), SQUARES)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"input": {"name": "image"}}, "inputs are 'pictures'"),
        ({"input": {"height": 32}}, "declaration makes it"),
        ({"input": {"dtype": "uint8"}}, "takes tensor(float)"),
        ({"input": {"layout": "nhwc"}}, "declaration makes it"),
        ({"outputs": {"boxes": "corners", "scores": "scores"}}, "no output 'corners'"),
        ({"outputs": {"boxes": "scores", "scores": "boxes"}}, "output 'scores' has the shape"),
        ({"classes": ["dim", "bright"]}, "declared was (N, 2)"),
        ({"outputs": {"packed": "boxes", "order": "rows"}}, "declared was (N, 4 + 1), by rows"),
    ],
)
def test_what_differs_from_the_declaration_is_named(check: Check, changes: dict[str, Any], why: str) -> None:
    assert why in refused(check, square_detector(), squares_declared(**changes), SQUARES)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": "circles"}, "no head 'circles'"),
        ({"kind": "mask", "outputs": {"scores": "scores"}}, "squares' is boxes in the ontology"),
        ({"classes": ["blue"]}, "no class 'blue'"),
        ({"classes": [None]}, "names no class"),
        ({"colour": "red"}, "Extra inputs are not permitted"),
        ({"input": {"batch": 1000}}, "less than or equal to 64"),
        ({"input": {"std": [1, 0, 1]}}, "std must not be 0"),
    ],
)
def test_a_declaration_that_is_none_is_refused_without_the_file(
    check: Check, changes: dict[str, Any], why: str
) -> None:
    assert why in refused(check, b"never read", squares_declared(**changes), SQUARES)


def test_numbers_that_are_not_finite_are_refused(check: Check) -> None:
    model = square_detector()
    model.graph.initializer[0].CopyFrom(constant("threshold", np.float32(np.nan)))
    assert "not finite" in refused(check, model, squares_declared(), SQUARES)


def test_a_dense_scalar_passes_with_its_own_uncertainty(check: Check) -> None:
    nodes = [
        helper.make_node("ReduceMean", ["pictures"], ["grey"], axes=[1], keepdims=1),
        helper.make_node("ReduceMean", ["grey"], ["doubt"], axes=[1, 2, 3], keepdims=0),
    ]
    model = build(nodes, [], ["n", 3, 32, 64], ["grey", "doubt"])
    declared = {
        "input": {"name": "pictures", "height": 32, "width": 64, "mean": [-0.1, -0.1, -0.1]},
        "heads": [
            {
                "name": "depth",
                "kind": "dense_scalar",
                "outputs": {"values": "grey"},
                "inverse": True,
                "uncertainty": {"output": "doubt"},
            }
        ],
    }
    check(model, declared, DEPTH)


def test_a_file_that_takes_too_much_ends_its_child_and_not_us(check: Check) -> None:
    nodes = [
        helper.make_node("Expand", ["big", "shape"], ["huge"]),
        helper.make_node("ReduceMean", ["huge"], ["m"], keepdims=0),
        helper.make_node("Mul", ["pictures", "m"], ["mask"]),
    ]
    constants = [constant("big", np.float32([1])), constant("shape", np.array([40_000, 1_000_000], np.int64))]
    model = build(nodes, constants, ["n", 3, 48, 96], ["mask"])
    declared = {
        "input": {"name": "pictures", "height": 48, "width": 96},
        "heads": [{"name": "road", "kind": "mask", "classes": [None, None, "road"], "outputs": {"scores": "mask"}}],
    }
    why = refused(check, model, declared, ROAD, limits=CheckLimits(memory_bytes=6 << 30))
    assert "can't be" in why or "ended the process" in why


def test_a_file_that_takes_too_long_is_refused(check: Check) -> None:
    with pytest.raises(Invalid, match="took more than 0"):
        check(square_detector(), squares_declared(), SQUARES, limits=CheckLimits(wall_s=0.05))
