"""The Trainer that runs ``python -m models.train`` in a child. This process never imports torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from engine.adapters.training_folder import Watch, lay_out, refuse_unless_done, run_child
from engine.domain.formats import ModelFormat
from engine.ports import (
    Heartbeat,
    ModelFiles,
    TrainedModel,
    Trainer,
    TrainingPlan,
    TrainingRefused,
    TrainingSample,
)

FORMAT = ModelFormat.HYDRANET
SOURCE_ROOT = Path(__file__).resolve().parents[3]


class TorchTrainer(Trainer):
    """Lays the folder out, runs the child, passes its progress to the heartbeat. An attempt goes on from the newest
    whole checkpoint that any attempt left in the folder."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, beat_every_s: float = 3.0, poll_every_s: float = 0.2
    ) -> None:
        """`environment` is the child's; without one it has ours."""
        self._environment = environment
        self._watch = Watch(beat_every_s, poll_every_s)

    def train(
        self, folder: Path, plan: TrainingPlan, samples: Iterable[TrainingSample], attempt: int, heartbeat: Heartbeat
    ) -> TrainedModel:
        """Raises TrainingRefused, TrainingCrashed, and whatever `heartbeat` raises, after the child is dead."""
        heartbeat(None)
        if plan.warm_start is not None and plan.warm_start.format != FORMAT:
            raise TrainingRefused(f"a warm start needs {FORMAT} weights, not {plan.warm_start.format}")
        lay_out(folder, plan, samples)
        output = folder / f"attempt-{attempt}"
        output.mkdir(exist_ok=True)
        environment = None
        if self._environment is not None:
            environment = {**self._environment, "OMP_NUM_THREADS": str(plan.threads)}
        command = [sys.executable, "-u", "-m", "models.train", str(folder.resolve()), "--attempt", str(attempt)]
        code = run_child(command, SOURCE_ROOT, environment, output, plan.checkpoint_every, heartbeat, self._watch)
        refuse_unless_done(output, code)
        config = json.loads((output / "model.json").read_text())
        metrics = json.loads((output / "result.json").read_text())
        return TrainedModel(ModelFiles(FORMAT, output / "weights.safetensors", config), metrics)
