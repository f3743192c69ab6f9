"""What every trainer in a child process shares: the folder it is given, how it is watched, and how it is ended.

ARCHITECTURE.md, "The training folder", says what lies where.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.domain.formats import ModelFormat
from engine.ports import Heartbeat, TrainingPlan, TrainingProgress, TrainingRefused, TrainingSample

REFUSED = 3
ERROR_TAIL = 4000  # characters of the child's stderr that a crash report carries
WARM_STARTS = {ModelFormat.HYDRANET: "warm_start.safetensors", ModelFormat.ONNX: "warm_start.onnx"}
_PR_SET_PDEATHSIG = 1


class TrainingCrashed(RuntimeError):
    """The child ended without a result and without a refusal; the same folder may be tried again."""


@dataclass(frozen=True)
class Watch:
    """How often the heartbeat is called and the child is looked at, in seconds, and how long it gets to end itself.

    `ending` is the signal that ends the child; after `grace_s` it is killed.
    """

    beat_every_s: float = 3.0
    poll_every_s: float = 0.2
    ending: signal.Signals = signal.SIGKILL
    grace_s: float = 15.0


def run_child(
    command: Sequence[str],
    working_folder: Path,
    environment: Mapping[str, str] | None,
    output: Path,
    checkpoint_every: int,
    heartbeat: Heartbeat,
    watch: Watch,
) -> int:
    """Run a training to its end, its words in `output`/stderr.txt and its progress told on; returns its exit code.

    The child dies with this process. Whatever `heartbeat` raises ends it and is passed on.
    """
    with (output / "stderr.txt").open("wb") as stderr:
        child = subprocess.Popen(
            list(command),
            cwd=working_folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            preexec_fn=die_with(os.getpid(), watch.ending),
        )
        try:
            return _watch(child, output, checkpoint_every, heartbeat, watch)
        finally:
            # Also on KeyboardInterrupt and LeaseLost: nobody may write to the folder after we have left it.
            if child.poll() is None:
                child.send_signal(watch.ending)
                try:
                    child.wait(watch.grace_s)
                except subprocess.TimeoutExpired:
                    child.kill()
            child.wait()


def _watch(
    child: subprocess.Popen[bytes], output: Path, checkpoint_every: int, heartbeat: Heartbeat, watch: Watch
) -> int:
    tail = ProgressTail(output / "progress.jsonl")
    latest: TrainingProgress | None = None
    beaten_at, checkpoint = time.monotonic(), 0
    while True:
        code = child.poll()
        latest = tail.newest() or latest
        reached = latest.step // checkpoint_every if latest else 0
        if code is not None or reached > checkpoint or time.monotonic() - beaten_at >= watch.beat_every_s:
            heartbeat(latest)
            beaten_at, checkpoint = time.monotonic(), reached
        if code is not None:
            return code
        try:
            child.wait(watch.poll_every_s)
        except subprocess.TimeoutExpired:
            continue


class ProgressTail:
    """Reads the lines that were added to progress.jsonl since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # What an earlier run under the same attempt reported is not news.
        self._offset = path.stat().st_size if path.exists() else 0

    def newest(self) -> TrainingProgress | None:
        """Raises TrainingRefused for a line that is no report: a trainer that writes one will write it again."""
        if not self._path.exists():
            return None
        with self._path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]  # a line may be half written
        self._offset += len(whole)
        if not whole:
            return None
        try:
            line = json.loads(whole.splitlines()[-1])
            losses = {str(head): float(loss) for head, loss in line.get("losses", {}).items()}
            return TrainingProgress(step=int(line["step"]), steps=int(line["steps"]), losses=losses)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TrainingRefused(
                f"a line of progress.jsonl is not of the form {{step, steps, losses}} ({type(error).__name__}: {error})"
            ) from error


def lay_out(
    folder: Path, plan: TrainingPlan, samples: Iterable[TrainingSample], *, copy_pictures: bool = False
) -> None:
    """Write config.json, samples.jsonl, the label arrays and the weights to start from; the same plan writes the same
    bytes.

    `copy_pictures` puts the pictures into the folder, so that it is whole by itself and nobody is told where the blobs
    lie; else samples.jsonl points to them.
    """
    (folder / "arrays").mkdir(parents=True, exist_ok=True)
    if copy_pictures:
        (folder / "pictures").mkdir(exist_ok=True)
    lines = []
    for number, sample in enumerate(samples):
        labels: dict[str, Any] = {}
        for head, answer in sample.labels.items():
            array = None
            if answer.array is not None:
                array = f"arrays/{number:06d}-{head}.npy"
                write(folder / array, answer.array)
            labels[head] = {"value": answer.value, "array": array}
        picture = str(sample.picture.resolve())
        if copy_pictures:
            picture = f"pictures/{number:06d}.png"
            _copy(sample.picture, folder / picture)
        document = {
            "id": sample.id,
            "picture": picture,
            "labels": labels,
            "annotated_classes": {head: list(classes) for head, classes in sample.annotated_classes.items()},
        }
        lines.append(json.dumps(document, sort_keys=True))
    write(folder / "samples.jsonl", "".join(line + "\n" for line in lines).encode())
    warm_start = None
    if plan.warm_start is not None:
        format = ModelFormat(plan.warm_start.format)
        if format not in WARM_STARTS:
            raise TrainingRefused(f"nothing can start from a model of the format {format}: start from scratch")
        _copy(plan.warm_start.weights, folder / WARM_STARTS[format])
        config = dict(plan.warm_start.config)
        warm_start = {"weights": WARM_STARTS[format], "format": str(format), "config": config}
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
    write(folder / "config.json", json.dumps(config, sort_keys=True, indent=1).encode())


def write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    temporary = path.with_name(path.name + ".partial")
    temporary.write_bytes(content)
    temporary.rename(path)


def _copy(source: Path, target: Path) -> None:
    temporary = target.with_name(target.name + ".partial")
    shutil.copyfile(source, temporary)
    temporary.rename(target)


def refuse_unless_done(output: Path, code: int) -> None:
    """Raises TrainingRefused for exit code 3, with the reason in refused.json, and TrainingCrashed for any but 0."""
    said = (output / "stderr.txt").read_text(errors="replace")[-ERROR_TAIL:]
    if code == REFUSED:
        try:
            reason = str(json.loads((output / "refused.json").read_text())["reason"])
        except (OSError, ValueError, KeyError, TypeError):
            reason = f"the training refused to run, and left no refused.json with a reason: {said}"
        raise TrainingRefused(reason)
    if code != 0:
        raise TrainingCrashed(f"the training ended with code {code}: {said}")


def die_with(parent: int, ending: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """What the child does before it execs: ask the kernel for `ending` when we die. libc is loaded before the fork."""
    libc = ctypes.CDLL(None, use_errno=True)

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(ending))
        if os.getppid() != parent:  # we died before it could ask
            os._exit(1)

    return ask
