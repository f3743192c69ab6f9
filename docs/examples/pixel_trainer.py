"""A trainer that is not Longtail's: where a class mostly is, corrected by colour, for every mask head; out comes ONNX.

`python pixel_trainer.py FOLDER --attempt N`, as docs/bring-your-model.md tells. It needs numpy, Pillow and onnx.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from PIL import Image

REFUSED = 3
HEIGHT, WIDTH = 96, 128
PIXELS = 40_000
FEATURES = 6  # red, green, blue, each from 0 to 1, and their squares


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--attempt", type=int, required=True)
    given = parser.parse_args()
    out: Path = given.folder / f"attempt-{given.attempt}"
    config = json.loads((given.folder / "config.json").read_text())
    samples = [json.loads(line) for line in (given.folder / "samples.jsonl").read_text().splitlines()]
    heads = [head for head in config["heads"] if head["kind"] == "mask"]
    steps = int(config["options"].get("regression_steps", 400))
    models, metrics = {}, {}
    for head in heads:
        labelled = [sample for sample in samples if head["name"] in sample["labels"]]
        if not labelled:
            (out / "refused.json").write_text(json.dumps({"reason": f"head {head['name']!r} has no labelled picture"}))
            return REFUSED
        colours, cells = read(given.folder, labelled, head["name"])
        prior = places(cells, len(head["classes"]) + 1)
        report = out / "progress.jsonl"
        weights, loss = fit(colours, cells, prior, steps, config["seed"], report, head["name"])
        models[head["name"]] = (weights, prior)
        metrics[head["name"]] = {"pictures": len(labelled), "loss": loss}
    if not heads:
        (out / "refused.json").write_text(json.dumps({"reason": "it can only learn masks, and the line has none"}))
        return REFUSED
    save(network(models), out / "model.onnx")
    (out / "artifact.json").write_text(json.dumps({"format": "onnx", "file": "model.onnx"}))
    (out / "model.json").write_text(json.dumps(declaration(heads)))
    (out / "result.json").write_text(json.dumps(metrics))  # last: now it is done
    return 0


def read(folder: Path, samples: list[dict[str, Any]], head: str) -> tuple[np.ndarray, np.ndarray]:
    """Colours (n, H, W, 3) from 0 to 1, and cells (n, H, W): 0 background, i + 1 the class i, 255 ignored."""
    colours, masks = [], []
    for sample in samples:
        with Image.open(folder / sample["picture"]) as image:
            small = image.convert("RGB").resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR)
        value = sample["labels"][head]["value"]
        cells = np.concatenate([np.full(length, index, np.uint8) for index, length in value["runs"]])
        mask = Image.fromarray(cells.reshape(value["size"])).resize((WIDTH, HEIGHT), Image.Resampling.NEAREST)
        colours.append(np.asarray(small, dtype=np.float32) / 255)
        masks.append(np.asarray(mask))
    return np.stack(colours), np.stack(masks)


def places(cells: np.ndarray, classes: int) -> np.ndarray:
    """How often each class is at each place, as logarithms: (classes, H, W)."""
    counts = np.stack([(cells == index).sum(0) for index in range(classes)]) + 0.5
    logs: np.ndarray = np.log(counts / counts.sum(0))
    return logs


def fit(
    colours: np.ndarray, cells: np.ndarray, prior: np.ndarray, steps: int, seed: int, report: Path, head: str
) -> tuple[np.ndarray, float]:
    """Softmax regression on colour, on top of the prior: weights (classes, 7), the bias last, and the final loss."""
    known = np.flatnonzero(cells.ravel() != 255)
    chosen = np.random.default_rng(seed).choice(known, min(PIXELS, len(known)), replace=False)
    colour = colours.reshape(-1, 3)[chosen]
    design = np.c_[colour, colour**2, np.ones(len(chosen))]
    wanted = np.eye(len(prior))[cells.ravel()[chosen]]
    offset = prior.reshape(len(prior), -1).T[chosen % (HEIGHT * WIDTH)]
    weights = np.zeros((len(prior), FEATURES + 1))
    momentum, loss = np.zeros_like(weights), 0.0
    with report.open("a") as progress:
        for step in range(1, steps + 1):
            logits = design @ weights.T + offset
            share = np.exp(logits - logits.max(1, keepdims=True))
            share /= share.sum(1, keepdims=True)
            loss = float(-np.log((share * wanted).sum(1) + 1e-12).mean())
            momentum = 0.9 * momentum + (share - wanted).T @ design / len(design)
            weights -= 0.5 * momentum
            if step % 50 == 0 or step == steps:
                progress.write(json.dumps({"step": step, "steps": steps, "losses": {head: loss}}) + "\n")
                progress.flush()
    return weights, loss


def network(models: dict[str, tuple[np.ndarray, np.ndarray]]) -> Any:
    """Pictures (n, 3, H, W) in [0, 1] to logits (n, classes, H, W) for each head."""
    nodes = [
        helper.make_node("Mul", ["pictures", "pictures"], ["squares"]),
        helper.make_node("Concat", ["pictures", "squares"], ["features"], axis=1),
    ]
    constants, outputs = [], []
    for head, (weights, prior) in models.items():
        for name, values in {
            "kernel": weights[:, :-1, None, None],
            "bias": weights[:, -1],
            "prior": prior[None],
        }.items():
            constants.append(numpy_helper.from_array(values.astype(np.float32), f"{head}_{name}"))
        nodes.append(helper.make_node("Conv", ["features", f"{head}_kernel", f"{head}_bias"], [f"{head}_colour"]))
        nodes.append(helper.make_node("Add", [f"{head}_colour", f"{head}_prior"], [head]))
        outputs.append(helper.make_tensor_value_info(head, TensorProto.FLOAT, ["n", len(weights), HEIGHT, WIDTH]))
    pictures = helper.make_tensor_value_info("pictures", TensorProto.FLOAT, ["n", 3, HEIGHT, WIDTH])
    graph = helper.make_graph(nodes, "pixels", [pictures], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def declaration(heads: list[dict[str, Any]]) -> dict[str, Any]:
    """What Longtail has to know to ask the network."""
    return {
        "input": {"name": "pictures", "height": HEIGHT, "width": WIDTH, "batch": 8},
        "heads": [
            {
                "name": head["name"],
                "kind": "mask",
                "classes": [None, *head["classes"]],
                "outputs": {"scores": head["name"]},
            }
            for head in heads
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
