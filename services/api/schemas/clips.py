"""What is told of clips."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from pydantic import BaseModel


class ClipAccepted(BaseModel):
    """The clip is durable."""

    id: uuid.UUID
    location: str
    created: bool
    clock_suspect: bool


class ClipSummary(BaseModel):
    """A clip in a list."""

    id: uuid.UUID
    external_id: str
    vehicle: str
    drive: str
    split: str
    state: str
    start_ns: int
    end_ns: int
    clock_suspect: bool
    tags: dict[str, Any]
    received_at: datetime


class StreamOut(BaseModel):
    """A stream of a clip."""

    name: str
    kind: str
    sha256: str | None
    size_bytes: int
    codec: str
    width: int
    height: int
    time_base: list[int]
    pts: list[int]
    start_offset_ns: int
    calibration: dict[str, Any] | None


class HeadScore(BaseModel):
    """How unsure a model version is of one head of a frame: `quantile` on that version's fixed reference."""

    head: str
    raw: float
    quantile: float


class FrameScores(BaseModel):
    """A sampled frame and its scores."""

    subject_id: uuid.UUID
    stream: str
    pts: int
    capture_ns: int
    heads: list[HeadScore]


class ScoringOut(BaseModel):
    """What one model version said of the clip."""

    model_version_id: uuid.UUID
    model: str
    created_at: datetime
    frames: list[FrameScores]


class ChosenOut(BaseModel):
    """Why a frame of the clip was chosen."""

    queue_item_id: uuid.UUID
    subject_id: uuid.UUID
    campaign: str
    arm: str
    state: str
    heads: list[str]
    inclusion_probability: float | None
    reason: dict[str, Any]


class ClipLabel(BaseModel):
    """A current label of the clip."""

    id: uuid.UUID
    subject_id: uuid.UUID
    head: str
    source: str
    revision: int


class UsedBy(BaseModel):
    """A dataset version that holds subjects of the clip, and the model versions that came of it."""

    dataset_version_id: uuid.UUID
    dataset: str
    model_version_ids: list[uuid.UUID]


class Lineage(BaseModel):
    """Where the clip went."""

    labels: list[ClipLabel]
    used_by: list[UsedBy]
    golden_sets: list[uuid.UUID]


class ClipOut(ClipSummary):
    """One clip, whole."""

    platform: str
    split_group: str
    clock_source: str
    clock_error_ns: int | None
    onboard_model_version: str | None
    onboard_software: str | None
    licence: str
    allowed_purposes: list[str]
    region: str | None
    retain_until: datetime | None
    legal_hold: bool
    events: list[dict[str, Any]]
    streams: list[StreamOut]
    scores: list[ScoringOut]
    chosen: list[ChosenOut]
    lineage: Lineage
