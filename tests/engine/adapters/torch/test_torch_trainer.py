from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from safetensors.numpy import load_file

from engine.adapters.torch.trainer import TorchTrainer
from engine.adapters.training_folder import TrainingCrashed
from engine.ports import TrainedModel, TrainingPlan, TrainingProgress, TrainingRefused, TrainingSample

MakePlan = Callable[..., TrainingPlan]
MakeSamples = Callable[..., list[TrainingSample]]
TRAINER = TorchTrainer(beat_every_s=0.05, poll_every_s=0.01)


class LeaseLost(RuntimeError):
    """The work is no longer ours."""


def children() -> list[psutil.Process]:
    """The trainings that this process has started; it has other children, the servers of other tests among them."""
    running = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in running if "models.train" in child.cmdline()]


def train(folder: Path, plan: TrainingPlan, samples: list[TrainingSample], attempt: int = 0) -> TrainedModel:
    return TRAINER.train(folder, plan, samples, attempt, lambda progress=None: None)


def test_trains_and_tells_of_its_progress(tmp_path: Path, plan: MakePlan, samples: MakeSamples) -> None:
    heard: list[TrainingProgress] = []

    def heartbeat(progress: TrainingProgress | None = None) -> None:
        if progress is not None:
            heard.append(progress)

    trained = TRAINER.train(tmp_path / "run", plan(), samples(), 0, heartbeat)
    assert trained.files.format == "hydranet-safetensors"
    assert trained.files.weights.exists()
    assert [head["name"] for head in trained.files.config["heads"]] == ["driveable", "depth"]
    assert trained.files.config["heads"][1]["unit"] == "m"
    assert trained.metrics["labelled"] == {"driveable": 4, "depth": 4}
    assert heard[-1].step == heard[-1].steps == 6
    assert set(heard[-1].losses) == {"driveable", "depth"}
    assert not children()


@pytest.mark.slow
def test_killed_anywhere_it_ends_where_it_would_have(tmp_path: Path, plan: MakePlan, samples: MakeSamples) -> None:
    undisturbed = train(tmp_path / "whole", plan(steps=12), samples())
    folder = tmp_path / "killed"

    def kill(progress: TrainingProgress | None = None) -> None:
        if progress is not None and progress.step >= 5:
            for child in children():
                child.send_signal(signal.SIGKILL)

    with pytest.raises(TrainingCrashed, match="-9"):
        TRAINER.train(folder, plan(steps=12), samples(), 0, kill)
    resumed = train(folder, plan(steps=12), samples(), attempt=1)
    began = json.loads((folder / "attempt-1" / "progress.jsonl").read_text().splitlines()[0])["step"]
    assert 4 <= began < 12
    a, b = load_file(undisturbed.files.weights), load_file(resumed.files.weights)
    assert set(a) == set(b)
    assert all((a[name] == b[name]).all() for name in a)


def test_what_the_heartbeat_raises_ends_the_child(tmp_path: Path, plan: MakePlan, samples: MakeSamples) -> None:
    alive: list[psutil.Process] = []

    def lose(progress: TrainingProgress | None = None) -> None:
        if progress is not None and progress.step >= 2:
            alive.extend(children())
            raise LeaseLost

    with pytest.raises(LeaseLost):
        TRAINER.train(tmp_path / "run", plan(steps=5000), samples(), 0, lose)
    assert len(alive) == 1
    assert not alive[0].is_running()
    assert not (tmp_path / "run" / "attempt-0" / "result.json").exists()


def test_labels_that_say_nothing_are_refused(tmp_path: Path, plan: MakePlan, samples: MakeSamples) -> None:
    with pytest.raises(TrainingRefused, match="'depth'"):
        train(tmp_path / "run", plan(), samples(depth=float("nan")))


def test_warm_start_from_a_trained_model(tmp_path: Path, plan: MakePlan, samples: MakeSamples) -> None:
    first = train(tmp_path / "first", plan(steps=2), samples())
    second = train(tmp_path / "second", plan(steps=2, warm_start=first.files), samples())
    assert second.metrics["warm_start"]["loaded"] == ["depth", "driveable"]


def test_the_child_dies_with_its_parent(tmp_path: Path, plan: MakePlan, samples: MakeSamples) -> None:
    train(tmp_path / "run", plan(steps=1), samples())  # lays the folder out
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "steps": 100000}))
    program = textwrap.dedent(
        f"""
        import os, subprocess, sys, time
        from engine.adapters.training_folder import die_with
        child = subprocess.Popen(
            [sys.executable, "-m", "models.train", {str(tmp_path / "run")!r}, "--attempt", "1"],
            preexec_fn=die_with(os.getpid()),
        )
        print(child.pid, flush=True)
        time.sleep(60)
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.stdout.close()
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 5
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_the_trainer_needs_no_torch() -> None:
    program = "import sys, engine.adapters.torch.trainer; sys.exit('torch' in sys.modules or 'models' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
