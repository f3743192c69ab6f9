"""The one place where a model goes to the adapter of its format, and a run to the trainer that it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from engine.domain.refusals import Invalid
from engine.ports import (
    FrameScore,
    Heartbeat,
    ModelCheck,
    ModelFiles,
    Picture,
    Scorer,
    TrainedModel,
    Trainer,
    TrainingPlan,
    TrainingRefused,
    TrainingSample,
)


class ScorerByFormat:
    """A Scorer that hands each model to the scorer of its format."""

    def __init__(self, scorers: Mapping[str, Scorer]) -> None:
        self._scorers = dict(scorers)

    def score(self, model: ModelFiles, pictures: Sequence[Picture]) -> list[FrameScore]:
        """One FrameScore per picture, in order. Raises Invalid for a format that has no scorer here."""
        return self._of(model).score(model, pictures)

    def embed(self, model: ModelFiles, pictures: Sequence[Picture]) -> list[tuple[float, ...]]:
        """The embeddings alone."""
        return self._of(model).embed(model, pictures)

    def _of(self, model: ModelFiles) -> Scorer:
        if model.format not in self._scorers:
            raise Invalid(
                "not-askable",
                f"a model version of the format {model.format!r} can't be asked here",
                f"this worker asks models of: {', '.join(sorted(self._scorers))}",
            )
        return self._scorers[model.format]


class CheckByFormat:
    """A ModelCheck that hands each model to the check of its format."""

    def __init__(self, checks: Mapping[str, ModelCheck]) -> None:
        self._checks = dict(checks)

    def check(self, model: ModelFiles) -> None:
        """Raises Invalid, also for a format that nobody checks: what is not looked at is not taken."""
        if model.format not in self._checks:
            raise Invalid(
                "unknown-format",
                f"a model version can't be of the format {model.format!r}",
                f"formats are: {', '.join(sorted(self._checks))}",
            )
        self._checks[model.format].check(model)


class TrainerByName:
    """A Trainer that hands each run to the trainer that its plan names."""

    def __init__(self, trainers: Mapping[str, Trainer]) -> None:
        self._trainers = dict(trainers)

    def train(
        self, folder: Path, plan: TrainingPlan, samples: Iterable[TrainingSample], attempt: int, heartbeat: Heartbeat
    ) -> TrainedModel:
        """Raises TrainingRefused, also for a name that the operator has given to no trainer."""
        if plan.trainer not in self._trainers:
            raise TrainingRefused(
                f"there is no trainer {plan.trainer!r} here; there are: {', '.join(sorted(self._trainers))}. "
                "The operator names them in LONGTAIL_TRAINERS, for the retraining workers"
            )
        return self._trainers[plan.trainer].train(folder, plan, samples, attempt, heartbeat)
