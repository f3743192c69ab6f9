"""A model that must not pass: trained elsewhere, from the champion's weights, on labels of other pictures.

It goes in as any outsider's model does, through ``POST /v1/models``. Whether it is refused is the gate's doing alone.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace

import httpx
import numpy as np
from sqlalchemy import select

from engine.adapters.torch.trainer import TorchTrainer
from engine.ports import TrainedModel, TrainingProgress, TrainingSample
from engine.stages.train import training_plan, training_samples
from engine.store.blobs import sha256_of
from engine.store.lines import get_line, model_files, ontology_of
from engine.store.manifests import held_sha256, read
from engine.store.tables.labels import DatasetVersion
from services.demo.credentials import Credentials
from services.demo.progress import Progress, Stage
from services.demo.turns import Loop, Turn
from services.local.stack import LocalStack

SEED = 7


def try_it(
    stack: LocalStack, loop: Loop, keys: Credentials, progress: Progress, targets: Sequence[str], steps: int
) -> tuple[bool, Turn]:
    """Train it, register it, have it judged; whether the gate refused it, and what it said."""
    turn = Turn("spoiled", targets=list(targets))
    with progress.stage(turn, "train", f"{steps} steps on shuffled labels, outside of the loop") as stage:
        trained = _train(stack, loop, stage, steps)
    with progress.stage(turn, "register", "registered through the API"):
        model_id = _register(stack, keys, loop, trained, targets)
    loop.wait_judged(turn, model_id)
    progress.say(f"  {'refused' if turn.verdict == 'refused' else 'PROMOTED'}: {'; '.join(turn.why[:2])}", "dim")
    return turn.verdict == "refused", turn


def shuffled(samples: Sequence[TrainingSample], seed: int) -> Iterator[TrainingSample]:
    """The samples with each one's labels given to another one's picture."""
    order = np.random.default_rng(seed).permutation(len(samples))
    for place, whose in enumerate(order):
        # One step along the shuffled order: nobody keeps their own.
        other = samples[int(order[(place + 1) % len(samples)])]
        yield replace(samples[int(whose)], labels=other.labels, annotated_classes=other.annotated_classes)


def _train(stack: LocalStack, loop: Loop, stage: Stage, steps: int) -> TrainedModel:
    wiring = loop.wiring
    with loop.database.read() as session:
        line = get_line(session, loop.line_id)
        ontology = ontology_of(session, line.ontology_id)
        dataset = session.scalars(
            select(DatasetVersion).where(DatasetVersion.line_id == line.id).order_by(DatasetVersion.id.desc()).limit(1)
        ).one()
        _, rows = read(wiring.blobs.read(sha256_of(session, dataset.manifest_blob_id)), held_sha256(dataset))
        assert line.champion_id is not None
        champion = model_files(session, wiring.blobs, line.champion_id)
    samples = list(training_samples(wiring.blobs, ontology, rows))
    settings = {**line.settings["training"], "steps": steps, "checkpoint_every": steps}
    settings["learning_rate"] = settings["learning_rate_scratch"]
    plan = training_plan(settings, SEED, ontology.heads, champion)

    def heartbeat(progress: TrainingProgress | None = None) -> None:
        if progress is not None:
            stage.at(progress.step, progress.steps)

    folder = stack.settings.data_dir / "spoiled" / str(time.time_ns())
    folder.mkdir(parents=True)
    trainer = TorchTrainer(stack.settings.child_environment())
    return trainer.train(folder, plan, shuffled(samples, SEED), 1, heartbeat)


def _register(
    stack: LocalStack, keys: Credentials, loop: Loop, trained: TrainedModel, targets: Sequence[str]
) -> uuid.UUID:
    headers = {"Authorization": f"Bearer {keys.token}"}
    with httpx.Client(base_url=stack.state.api_url, headers=headers, timeout=60, trust_env=False) as api:
        with trained.files.weights.open("rb") as weights:
            answer = api.post(
                "/v1/models",
                data={
                    "line": loop.line_name,
                    "config": json.dumps(dict(trained.files.config)),
                    "note": "trained elsewhere, on shuffled labels",
                },
                files={"weights": ("weights.safetensors", weights, "application/octet-stream")},
            )
        answer.raise_for_status()
        model_id = str(answer.json()["id"])
        api.post(f"/v1/models/{model_id}:judge", json={"target_heads": list(targets)}).raise_for_status()
    return uuid.UUID(model_id)
