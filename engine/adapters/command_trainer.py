"""The Trainer that is any command of the operator's: a folder in, an artifact and its metrics out.

The command is called as `COMMAND… FOLDER --attempt N` and leaves in FOLDER/attempt-N/: its artifact, model.json (the
config, which for ONNX is the declaration), artifact.json (`{"format", "file"}`; without it weights.safetensors of a
HydraNet) and, written last, result.json (its metrics). Exit code 0 is done, 3 refused, any other a crash.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.adapters import command_guard
from engine.adapters.training_folder import Watch, lay_out, refuse_unless_done, run_child
from engine.domain.formats import ModelFormat
from engine.domain.refusals import Invalid
from engine.ports import (
    Heartbeat,
    ModelCheck,
    ModelFiles,
    TrainedModel,
    Trainer,
    TrainingPlan,
    TrainingRefused,
    TrainingSample,
)

HYDRANET_ARTIFACT = {"format": str(ModelFormat.HYDRANET), "file": "weights.safetensors"}
MOST_JSON_BYTES = 16 << 20


class CommandTrainer(Trainer):
    """Lays a folder out that is whole by itself, runs the command in it, and takes only an artifact that passes
    `check`."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        check: ModelCheck,
        beat_every_s: float = 3.0,
        poll_every_s: float = 0.2,
    ) -> None:
        """`command` is the operator's, from the settings, and is started without a shell."""
        self._command = list(command)
        self._environment = dict(environment)
        self._check = check
        self._watch = Watch(beat_every_s, poll_every_s, ending=signal.SIGTERM)

    def train(
        self, folder: Path, plan: TrainingPlan, samples: Iterable[TrainingSample], attempt: int, heartbeat: Heartbeat
    ) -> TrainedModel:
        """Raises TrainingRefused, TrainingCrashed, and whatever `heartbeat` raises, after all of it is dead."""
        heartbeat(None)
        lay_out(folder, plan, samples, copy_pictures=True)
        output = folder / f"attempt-{attempt}"
        output.mkdir(exist_ok=True)
        guarded = [sys.executable, "-I", command_guard.__file__, *self._command]
        command = [*guarded, str(folder.resolve()), "--attempt", str(attempt)]
        environment = {**self._environment, "OMP_NUM_THREADS": str(plan.threads)}
        code = run_child(command, folder.resolve(), environment, output, plan.checkpoint_every, heartbeat, self._watch)
        refuse_unless_done(output, code)
        files = _artifact(output, plan)
        try:
            self._check.check(files)
        except Invalid as problem:
            raise TrainingRefused(
                f"the command's artifact can't be taken: {problem.detail}; {problem.hint}"
            ) from problem
        return TrainedModel(files, _json(output, "result.json"))


def _artifact(output: Path, plan: TrainingPlan) -> ModelFiles:
    said = _json(output, "artifact.json") if (output / "artifact.json").exists() else HYDRANET_ARTIFACT
    config = _json(output, "model.json")
    try:
        format = ModelFormat(said["format"])
        path = (output / str(said["file"])).resolve()
    except (KeyError, ValueError) as error:
        raise TrainingRefused(
            f"artifact.json must say a format ({', '.join(ModelFormat)}) and a file: {error}"
        ) from error
    if not path.is_relative_to(output.resolve()) or not path.is_file():
        raise TrainingRefused(f"the artifact {said['file']!r} is no file in {output.name}/")
    listed = config.get("heads")
    names = [head.get("name") if isinstance(head, Mapping) else head for head in listed or ()]
    known = {head.name: head for head in plan.heads}
    if not names or len(set(map(str, names))) != len(names) or any(str(name) not in known for name in names):
        raise TrainingRefused(
            f"model.json must list the model's `heads`, each once, out of: {', '.join(known)}; it lists {names}"
        )
    return ModelFiles(format, path, config, heads=[known[str(name)] for name in names])


def _json(output: Path, name: str) -> dict[str, Any]:
    try:
        if (output / name).stat().st_size > MOST_JSON_BYTES:
            raise ValueError(f"it has more than {MOST_JSON_BYTES} bytes")
        document = json.loads((output / name).read_text(), parse_constant=_refuse_constant)
        if not isinstance(document, dict):
            raise ValueError("it is no JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise TrainingRefused(f"the command ended well, but its {name} can't be read: {error}") from error
    return document


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON: say null")
