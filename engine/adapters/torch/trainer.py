"""The Trainer that runs ``python -m models.train`` in a child. This process never imports torch."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from engine.ports import (
    Heartbeat,
    ModelFiles,
    TrainedModel,
    Trainer,
    TrainingPlan,
    TrainingProgress,
    TrainingRefused,
    TrainingSample,
)

FORMAT = "hydranet-safetensors"
REFUSED = 3
PR_SET_PDEATHSIG = 1
SOURCE_ROOT = Path(__file__).resolve().parents[3]
ERROR_TAIL = 4000  # characters of the child's stderr that a crash report carries


class TrainingCrashed(RuntimeError):
    """The child ended without a result and without a refusal; the same folder may be tried again."""


class TorchTrainer(Trainer):
    """Lays the folder out, runs the child, passes its progress to the heartbeat. An attempt goes on from the newest
    whole checkpoint that any attempt left in the folder."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, beat_every_s: float = 3.0, poll_every_s: float = 0.2
    ) -> None:
        """`environment` is the child's; without one it has ours."""
        self._environment = environment
        self._beat_every_s = beat_every_s
        self._poll_every_s = poll_every_s

    def train(
        self, folder: Path, plan: TrainingPlan, samples: Iterable[TrainingSample], attempt: int, heartbeat: Heartbeat
    ) -> TrainedModel:
        """Raises TrainingRefused, TrainingCrashed, and whatever `heartbeat` raises, after the child is dead."""
        heartbeat(None)
        lay_out(folder, plan, samples)
        output = folder / f"attempt-{attempt}"
        output.mkdir(exist_ok=True)
        environment = None
        if self._environment is not None:
            environment = {**self._environment, "OMP_NUM_THREADS": str(plan.threads)}
        with (output / "stderr.txt").open("wb") as stderr:
            child = subprocess.Popen(
                [sys.executable, "-u", "-m", "models.train", str(folder.resolve()), "--attempt", str(attempt)],
                cwd=SOURCE_ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                preexec_fn=_die_with(os.getpid()),
            )
            try:
                code = self._watch(child, output, plan.checkpoint_every, heartbeat)
            finally:
                # Also on KeyboardInterrupt and LeaseLost: nobody may write to the folder after we have left it.
                if child.poll() is None:
                    child.kill()
                child.wait()
        return _outcome(output, code)

    def _watch(self, child: subprocess.Popen[bytes], output: Path, checkpoint_every: int, heartbeat: Heartbeat) -> int:
        tail = _ProgressTail(output / "progress.jsonl")
        latest: TrainingProgress | None = None
        beaten_at, checkpoint = time.monotonic(), 0
        while True:
            code = child.poll()
            latest = tail.newest() or latest
            reached = latest.step // checkpoint_every if latest else 0
            if code is not None or reached > checkpoint or time.monotonic() - beaten_at >= self._beat_every_s:
                heartbeat(latest)
                beaten_at, checkpoint = time.monotonic(), reached
            if code is not None:
                return code
            try:
                child.wait(self._poll_every_s)
            except subprocess.TimeoutExpired:
                continue


class _ProgressTail:
    """Reads the lines that were added to progress.jsonl since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # What an earlier run under the same attempt reported is not news.
        self._offset = path.stat().st_size if path.exists() else 0

    def newest(self) -> TrainingProgress | None:
        if not self._path.exists():
            return None
        with self._path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]  # a line may be half written
        self._offset += len(whole)
        if not whole:
            return None
        line = json.loads(whole.splitlines()[-1])
        return TrainingProgress(step=line["step"], steps=line["steps"], losses=line["losses"])


def lay_out(folder: Path, plan: TrainingPlan, samples: Iterable[TrainingSample]) -> None:
    """Write config.json, samples.jsonl, the label arrays and the weights to start from; the same plan writes the
    same bytes."""
    (folder / "arrays").mkdir(parents=True, exist_ok=True)
    lines = []
    for number, sample in enumerate(samples):
        labels: dict[str, Any] = {}
        for head, answer in sample.labels.items():
            array = None
            if answer.array is not None:
                array = f"arrays/{number:06d}-{head}.npy"
                _write(folder / array, answer.array)
            labels[head] = {"value": answer.value, "array": array}
        annotated = {head: list(classes) for head, classes in sample.annotated_classes.items()}
        document = {
            "id": sample.id,
            "picture": str(sample.picture.resolve()),
            "labels": labels,
            "annotated_classes": annotated,
        }
        lines.append(json.dumps(document, sort_keys=True))
    _write(folder / "samples.jsonl", "".join(line + "\n" for line in lines).encode())
    warm_start = None
    if plan.warm_start is not None:
        if plan.warm_start.format != FORMAT:
            raise TrainingRefused(f"a warm start needs {FORMAT} weights, not {plan.warm_start.format}")
        _write(folder / "warm_start.safetensors", plan.warm_start.weights.read_bytes())
        warm_start = {"weights": "warm_start.safetensors", "config": dict(plan.warm_start.config)}
    config = {
        "heads": [head.to_document() for head in plan.heads],
        "seed": plan.seed,
        "steps": plan.steps,
        "batch_size": plan.batch_size,
        "height": plan.height,
        "width": plan.width,
        "backbone": plan.backbone,
        "learning_rate": plan.learning_rate,
        "checkpoint_every": plan.checkpoint_every,
        "threads": plan.threads,
        "warm_start": warm_start,
        "options": dict(plan.options),
    }
    _write(folder / "config.json", json.dumps(config, sort_keys=True, indent=1).encode())


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".partial")
    temporary.write_bytes(content)
    temporary.rename(path)


def _outcome(output: Path, code: int) -> TrainedModel:
    if code == REFUSED:
        raise TrainingRefused(json.loads((output / "refused.json").read_text())["reason"])
    if code != 0:
        said = (output / "stderr.txt").read_text(errors="replace")[-ERROR_TAIL:]
        raise TrainingCrashed(f"the training ended with code {code}: {said}")
    config = json.loads((output / "model.json").read_text())
    metrics = json.loads((output / "result.json").read_text())
    return TrainedModel(ModelFiles(FORMAT, output / "weights.safetensors", config), metrics)


def _die_with(parent: int) -> Callable[[], None]:
    """What the child does before it execs: ask the kernel to be killed when we die. libc is loaded before the fork."""
    libc = ctypes.CDLL(None, use_errno=True)

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # we died before it could ask
            os._exit(1)

    return ask
