"""Predictions that were made elsewhere, as they are sent, and the golden pictures that they may be asked for."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field

from engine.domain.answers import Answer
from engine.domain.ontology import Kind
from engine.ports import FrameScore
from engine.stages.take_predictions import FramePrediction
from services.api.schemas.fields import JsonObject, Name, Posted, Pts
from services.api.schemas.labels import decoded


class AnswerIn(Posted):
    """The answer of one head in the canonical form of its kind, and how unsure the model is: 0 or more, growing."""

    kind: Kind
    value: JsonObject
    array_base64: Annotated[bytes | None, BeforeValidator(decoded, json_schema_input_type=str | None)] = Field(
        None, description="For the dense kinds: an .npy file of float16, NaN where there is no value."
    )
    uncertainty: float = Field(ge=0)


def _score(answers: Mapping[str, AnswerIn], embedding: list[float]) -> FrameScore:
    return FrameScore(
        {head: Answer(answer.kind, answer.value, answer.array_base64) for head, answer in answers.items()},
        {head: answer.uncertainty for head, answer in answers.items()},
        tuple(embedding),
    )


class FramePredictionIn(Posted):
    """What was said of one frame: an answer of every head that the model version has."""

    stream: Name
    pts: Pts
    answers: dict[Name, AnswerIn] = Field(min_length=1, max_length=256)
    embedding: list[float] = Field(
        default_factory=list,
        max_length=128,
        description="128 numbers of unit length; a model version of the format `predictions` needs it.",
    )


class PredictionsIn(Posted):
    """All that a model version says of one clip: its frames can't be added to later."""

    model: uuid.UUID
    clip: uuid.UUID
    frames: list[FramePredictionIn] = Field(min_length=1, max_length=5000)

    def to_domain(self) -> list[FramePrediction]:
        """The frames in the engine's terms."""
        return [
            FramePrediction(frame.stream, frame.pts, _score(frame.answers, frame.embedding)) for frame in self.frames
        ]


class GoldenPredictionIn(Posted):
    """What was said of one picture of a golden set."""

    subject: uuid.UUID
    answers: dict[Name, AnswerIn] = Field(min_length=1, max_length=256)


class GoldenPredictionsIn(Posted):
    """All that a model version says of a golden set; a picture that is left out counts as answered wrong."""

    model: uuid.UUID
    pictures: list[GoldenPredictionIn] = Field(min_length=1, max_length=100_000)

    def to_domain(self) -> dict[uuid.UUID, FrameScore]:
        """By subject. Raises ValueError for one that is there twice."""
        found = {picture.subject: _score(picture.answers, []) for picture in self.pictures}
        if len(found) != len(self.pictures):
            raise ValueError("a subject is there twice")
        return found


class PredictionsTaken(BaseModel):
    """`created` is false where the very same was recorded before."""

    created: bool
    subjects: int
    embeddings: int
    scoring_id: uuid.UUID | None


class GoldenPictureOut(BaseModel):
    """A picture of a golden set, without its labels; the link holds for a day."""

    id: uuid.UUID
    clip_id: uuid.UUID
    stream: str
    pts: int
    url: str
