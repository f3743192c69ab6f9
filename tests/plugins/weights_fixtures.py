"""Networks: the scorer and trainer that production has, and really trained weights, made once a session."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loop_fixtures import TRAINING
from PIL import Image
from road_scenes import HEIGHT, WIDTH, Scene, ontology

from engine.ports import ModelFiles, Picture, Scorer, TrainedModel, Trainer, TrainingPlan, TrainingSample

DRIVES = 40


class NobodyAsked:
    """A scorer of which nothing may be asked: what is on record has to do."""

    def score(self, model: Any, pictures: Sequence[Picture]) -> list[Any]:
        raise AssertionError("the scorer was asked")

    def embed(self, model: Any, pictures: Sequence[Picture]) -> list[Any]:
        raise AssertionError("the scorer was asked")


@pytest.fixture(scope="session")
def scorer() -> Scorer:
    from engine.adapters.torch.scorer import TorchScorer

    return TorchScorer()


@pytest.fixture(scope="session")
def trainer() -> Trainer:
    from engine.adapters.torch.trainer import TorchTrainer

    return TorchTrainer(beat_every_s=0.2, poll_every_s=0.02)


@pytest.fixture(scope="session")
def trained() -> Iterator[Callable[..., TrainedModel]]:
    """`trained(steps, seed, shuffled=False)`: 60 steps answer both heads well, 30 the road alone, 0 are random weights.

    Shuffled, each picture was learned with the labels of another drive.
    """
    from engine.adapters.training_folder import lay_out
    from models.train import main

    with tempfile.TemporaryDirectory(prefix="lt-weights-") as name:
        root = Path(name)
        kept: dict[tuple[int, int, bool], TrainedModel] = {}

        def train(steps: int = 60, seed: int = 1, *, shuffled: bool = False) -> TrainedModel:
            key = (steps, seed, shuffled)
            if key not in kept:
                folder = root / f"{steps}-{seed}-{shuffled}"
                folder.mkdir()
                plan = TrainingPlan(
                    heads=ontology().heads,
                    seed=seed,
                    steps=steps,
                    batch_size=TRAINING["batch_size"],
                    height=HEIGHT,
                    width=WIDTH,
                    backbone=TRAINING["backbone"],
                    learning_rate=TRAINING["learning_rate"],
                    checkpoint_every=1000,
                    threads=1,
                    options={name: TRAINING[name] for name in ("neck_width", "neck_layers", "head_width")},
                )
                lay_out(folder, plan, _samples(root, shuffled))
                assert main([str(folder), "--attempt", "1"]) == 0
                made = folder / "attempt-1"
                config = json.loads((made / "model.json").read_text())
                metrics = json.loads((made / "result.json").read_text())
                files = ModelFiles("hydranet-safetensors", made / "weights.safetensors", config)
                kept[key] = TrainedModel(files, metrics)
            return kept[key]

        yield train


def _samples(root: Path, shuffled: bool) -> list[TrainingSample]:
    samples = []
    others = np.random.default_rng(5).permutation(DRIVES)
    for seed in range(DRIVES):
        for pts in (0, 1000):
            path = root / f"{seed}-{pts}.png"
            Image.frombytes("RGB", (WIDTH, HEIGHT), Scene(seed).picture(pts).rgb).save(path)
            truth = Scene(int(others[seed]) if shuffled else seed).answers(pts)
            labels = {head.name: truth[head.name] for head in ontology().heads}
            samples.append(TrainingSample(f"{seed}-{pts}", path, labels))
    return samples
