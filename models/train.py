"""Trains a HydraNet on a folder that was laid out for it: ``python -m models.train FOLDER --attempt N``.

Exit 0: done; ``attempt-N/`` holds weights.safetensors, model.json and, written last, result.json. Exit 3: refused, for
the reason in ``attempt-N/refused.json``. Anything else is a crash and may be tried again under the next attempt, which
goes on from the newest whole checkpoint of them all and, on one thread, ends with the weights that an undisturbed run
would have.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.checkpoint import load_weights, newest_checkpoint, save_checkpoint, save_weights, write_json
from models.hydranet import HydraNet, HydraNetConfig
from models.loader import Batch, Batches, FolderError, Sample, TrainingSet, pictures_in_order, read_samples
from models.preflight import Refused, check_class_counts, check_losses, check_optimizer, check_samples

REFUSED = 3
SMALLEST_SCALE = 0.1  # no head's loss counts more than ten times its value


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m models.train")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--attempt", type=int, required=True)
    parsed = parser.parse_args(arguments)
    attempt = parsed.folder / f"attempt-{parsed.attempt}"
    attempt.mkdir(parents=True, exist_ok=True)
    try:
        train(parsed.folder, attempt)
    except (Refused, FolderError) as reason:
        write_json(attempt / "refused.json", {"reason": str(reason)})
        return REFUSED
    return 0


def train(folder: Path, attempt: Path) -> None:
    """The whole training. Raises Refused, FolderError."""
    began = time.monotonic()
    config = json.loads((folder / "config.json").read_text())
    options = {
        "augment": True,
        "weight_decay": 0.02,
        "gradient_clip": 5.0,
        "head_weights": {},
        **(config.get("options") or {}),
    }
    torch.set_num_threads(int(config["threads"]))
    torch.manual_seed(int(config["seed"]))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    steps, every = int(config["steps"]), int(config["checkpoint_every"])

    try:
        net = HydraNet(HydraNetConfig.from_document(config))
    except ValueError as wrong:
        raise Refused(str(wrong)) from wrong
    samples = read_samples(folder)
    data = TrainingSet(folder, samples, net)
    labelled = data.labelled()
    check_samples(net, samples, labelled)
    check_class_counts(net)
    batches = Batches(data, labelled, int(config["seed"]), int(config["batch_size"]), bool(options["augment"]))

    # Whatever a fresh start works out is in the checkpoint too, so that a resumed run doesn't work it out again.
    for name, rows in labelled.items():
        net.head(name).fit_statistics([data.labels(i)[name] for i in rows[:: max(1, len(rows) // 256)]])
    net.to(device)
    optimizer = torch.optim.AdamW(
        _parameter_groups(net, float(options["weight_decay"])), lr=float(config["learning_rate"])
    )
    check_optimizer(net, optimizer)
    digest = _digest(folder, config, samples)
    state = newest_checkpoint(folder, lambda s: s["digest"] == digest and s["step"] <= steps)
    if state is None:
        # Every head's loss is divided by what it is at a random start: also in a warm start, where its own value at the
        # start is small and would blow the head's weight up.
        scales = _losses_at_start(net, batches, device)
        warm = _warm_start(net, folder, config.get("warm_start"))
        step = 0
    else:
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scales, warm, step = state["scales"], state["warm_start"], state["step"]
    check_losses(scales, "at the start")
    _report(attempt, {"step": step, "steps": steps, "losses": {}, "warm_start": warm, "samples": len(samples)})

    net.train()
    losses: dict[str, float] = {}
    while step < steps:
        batch = batches.batch(step)
        rate = learning_rate(step, steps, float(config["learning_rate"]), warm is not None, options)
        for group in optimizer.param_groups:
            group["lr"] = rate
        by_head = head_losses(net, batch, device)
        losses = {name: float(loss.detach()) for name, loss in by_head.items()}
        check_losses(losses, f"at step {step}")
        weights = options["head_weights"]
        total = sum(
            (loss * (float(weights.get(name, 1.0)) / scales[name]) for name, loss in by_head.items()),
            torch.zeros((), device=device),
        )
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(net.parameters(), float(options["gradient_clip"])))
        if not math.isfinite(norm):
            raise Refused(f"the gradient at step {step} is not finite; the losses were {losses}")
        optimizer.step()
        step += 1
        if step % every == 0 or step == steps:
            save_checkpoint(
                attempt,
                step,
                {
                    "digest": digest,
                    "step": step,
                    "model": net.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scales": scales,
                    "warm_start": warm,
                },
            )
        _report(attempt, {"step": step, "steps": steps, "losses": losses, "learning_rate": rate, "gradient_norm": norm})

    net.eval()
    # Also after a warm start: the trunk has moved, so the statistics it came with centre nothing any more.
    net.fit_embedding(pictures.to(device) for pictures in pictures_in_order(data, 256, 16))
    save_weights(attempt / "weights.safetensors", net.state_dict())
    write_json(attempt / "model.json", net.config.to_document())
    write_json(
        attempt / "result.json",
        {
            "steps": steps,
            "seconds": round(time.monotonic() - began, 3),
            "samples": len(samples),
            "labelled": {name: len(rows) for name, rows in labelled.items()},
            "losses": losses,
            "losses_at_start": scales,
            "warm_start": warm,
        },
    )


def head_losses(net: HydraNet, batch: Batch, device: torch.device) -> dict[str, Tensor]:
    """By head, its loss over the frames of the batch that are labelled for it; a head with none is not there. A
    frame without a label never reaches the head: it is indexed out before."""
    pyramid = net.features(batch.pictures.to(device)).pyramid
    losses = {}
    for name in net.heads:
        if name in batch.rows:
            head = net.head(name)
            rows = torch.tensor(batch.rows[name], device=device)
            targets = head.targets(batch.labels[name])
            targets = type(targets)(*(t.to(device) for t in vars(targets).values()))
            losses[name] = head.loss(head([level[rows] for level in pyramid]), targets)
    return losses


def learning_rate(step: int, steps: int, peak: float, warm: bool, options: dict[str, Any]) -> float:
    """Linear warm-up, then half a cosine down to a fiftieth. A warm start climbs for longer, for AdamW's first steps
    are as long as any while its second moments are still noise, and would undo what the weights hold."""
    climb = max(1, int(options.get("warmup", 0)) or (min(30, steps // 5) if warm else min(20, steps // 10)))
    if step < climb:
        return peak * (step + 1) / climb
    along = (step - climb) / max(1, steps - climb)
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * along)))


@torch.no_grad()
def _losses_at_start(net: HydraNet, batches: Batches, device: torch.device) -> dict[str, float]:
    """Each head's loss on the first batches that hold a label for it, from the random start."""
    values: dict[str, list[float]] = {}
    for step in range(3):
        for name, loss in head_losses(net, batches.batch(step), device).items():
            values.setdefault(name, []).append(float(loss))
    # A head may be absent from the first batches where there are more heads than places; later ones hold it.
    step = 3
    while len(values) < len(net.heads):
        for name, loss in head_losses(net, batches.batch(step), device).items():
            values.setdefault(name, [float(loss)])
        step += 1
    means = {name: sum(v) / len(v) for name, v in values.items()}
    return {name: max(mean, SMALLEST_SCALE) if math.isfinite(mean) else mean for name, mean in means.items()}


def _warm_start(net: HydraNet, folder: Path, warm: dict[str, Any] | None) -> dict[str, Any] | None:
    """Load what fits by name and shape, heads only where kind and classes are the same; say which were and which
    weren't."""
    if warm is None:
        return None
    given = load_weights(folder / warm["weights"])
    before = {head["name"]: head for head in warm["config"]["heads"]}
    same = {
        spec.name
        for spec in net.config.heads
        if spec.name in before
        and before[spec.name]["kind"] == spec.kind
        and tuple(before[spec.name].get("classes", ())) == spec.classes
    }
    own = net.state_dict()
    taken = {
        name: tensor
        for name, tensor in given.items()
        if name in own
        and own[name].shape == tensor.shape
        and (not name.startswith("heads.") or name.split(".")[1] in same)
    }
    net.load_state_dict(taken, strict=False)
    whole = {name for name in same if all(key in taken for key in own if key.startswith(f"heads.{name}."))}
    trunk = [key for key in own if not key.startswith(("heads.", "embedding_"))]
    return {
        "loaded": sorted(whole),
        "fresh": sorted(set(net.heads) - whole),
        "trunk": sum(key in taken for key in trunk) / len(trunk),
    }


def _parameter_groups(net: HydraNet, decay: float) -> list[dict[str, Any]]:
    """Weights of convolutions decay; norms, biases and fusion weights don't."""
    parameters = [p for p in net.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]


def _digest(folder: Path, config: dict[str, Any], samples: list[Sample]) -> str:
    """A checkpoint belongs to this config and these labels, and to no others. Where the pictures lie and how many
    threads there are may change between attempts."""
    known = {key: value for key, value in config.items() if key != "threads"}
    content = [[sample.id, sample.labels, sample.annotated_classes] for sample in samples]
    return hashlib.sha256(json.dumps([known, content], sort_keys=True).encode()).hexdigest()


def _report(attempt: Path, document: dict[str, Any]) -> None:
    with (attempt / "progress.jsonl").open("a") as file:
        file.write(json.dumps({**document, "pid": os.getpid()}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
