"""Small ONNX models that really answer, written out operator by operator, with their declarations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from road_scenes import HEIGHT, WIDTH

from engine.domain.ontology import Head, Kind

SQUARES = Head("squares", Kind.BOXES, ("dim", "bright"))
CELL = 8
FLOAT = TensorProto.FLOAT


def constant(name: str, values: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values), name)


def build(
    nodes: Sequence[onnx.NodeProto],
    constants: Sequence[onnx.TensorProto],
    shape: Sequence[Any],
    outputs: Sequence[str],
    kind: int = FLOAT,
) -> onnx.ModelProto:
    """A model of one input, `pictures`. Shapes of outputs are left to be seen when it runs."""
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info("pictures", kind, shape)],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        list(constants),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def square_detector(height: int = 64, width: int = 96, batch: Any = "n") -> onnx.ModelProto:
    """Looks at cells of 8 x 8: a bright one is a box. Pixels come in as fractions of 1."""
    rows, columns = height // CELL, width // CELL
    top, left = np.mgrid[0:rows, 0:columns] * CELL
    corners = np.stack([left, top, left + CELL, top + CELL], axis=-1).reshape(1, -1, 4).astype(np.float32)
    node = helper.make_node
    nodes = [
        node("ReduceMean", ["pictures"], ["grey"], axes=[1], keepdims=1),
        node("AveragePool", ["grey"], ["cells"], kernel_shape=[CELL, CELL], strides=[CELL, CELL]),
        node("Sub", ["cells", "threshold"], ["over"]),
        node("Mul", ["over", "steep"], ["logits"]),
        node("Sigmoid", ["logits"], ["heat"]),
        node("Reshape", ["heat", "flat"], ["scores"]),
        node("Mul", ["scores", "nothing"], ["zeros"]),
        node("Add", ["zeros", "corners"], ["boxes"]),
    ]
    constants = [
        constant("threshold", np.float32(0.7)),
        constant("steep", np.float32(40)),
        constant("nothing", np.float32(0)),
        constant("flat", np.array([0, -1, 1], np.int64)),
        constant("corners", corners),
    ]
    return build(nodes, constants, [batch, 3, height, width], ["boxes", "scores"])


def squares_declared(height: int = 64, width: int = 96, **changes: Any) -> dict[str, Any]:
    return {
        "input": {"name": "pictures", "height": height, "width": width, "batch": 4, **changes.pop("input", {})},
        "heads": [
            {
                "name": "squares",
                "kind": "boxes",
                "classes": ["bright"],
                "outputs": {"boxes": "boxes", "scores": "scores"},
                **changes,
            }
        ],
    }


def road_model() -> onnx.ModelProto:
    """Knows the drawn roads by their colour and day by its light; its features are the picture's cells."""
    node = helper.make_node
    nodes = [
        node("Split", ["pictures"], ["r", "g", "b"], axis=1),
        node("Sub", ["r", "g"], ["redder"]),
        node("Mul", ["redder", "half"], ["colour"]),
        node("Add", ["colour", "six"], ["road"]),
        node("Mul", ["redder", "zero"], ["other"]),
        node("Concat", ["other", "road"], ["mask"], axis=1),
        node("ReduceMean", ["pictures"], ["level"], axes=[2, 3], keepdims=0),
        node("ReduceMean", ["level"], ["grey"], axes=[1], keepdims=1),
        node("Sub", ["grey", "dusk"], ["lighter"]),
        node("Mul", ["lighter", "fifth"], ["day"]),
        node("Neg", ["day"], ["night"]),
        node("Concat", ["day", "night"], ["light"], axis=1),
        node("AveragePool", ["pictures"], ["cells"], kernel_shape=[8, 8], strides=[8, 8]),
        node("Flatten", ["cells"], ["features"]),
    ]
    values = {"half": 0.5, "six": 6.0, "zero": 0.0, "dusk": 62.0, "fifth": 0.2}
    constants = [constant(name, np.float32(value)) for name, value in values.items()]
    return build(nodes, constants, ["n", 3, HEIGHT, WIDTH], ["mask", "light", "features"])


def road_declared(*heads: str) -> dict[str, Any]:
    """Of `road_model`, with these heads or both."""
    both = [
        {"name": "road", "kind": "mask", "classes": [None, "road"], "outputs": {"scores": "mask"}},
        {"name": "light", "kind": "choice", "classes": ["day", "night"], "outputs": {"scores": "light"}},
    ]
    return {
        "input": {"name": "pictures", "height": HEIGHT, "width": WIDTH, "scale": 1.0, "batch": 8},
        "heads": [head for head in both if not heads or head["name"] in heads],
        "embedding": {"output": "features"},
    }
