"""Schedules that retrain, as they are told and asked for."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from services.api.schemas.fields import JsonObject, Name, Posted, Seed
from services.api.schemas.models import Out


class ScheduleIn(Posted):
    """A schedule to be made: with `cron`, or with `new_labels`, one of the two."""

    name: Name = Field(description="No colon in it.")
    line: Name = Field(description="Name of the model line that is retrained.")
    target_heads: list[Name] = Field(
        min_length=1, max_length=64, description="Where the challengers have to be better."
    )
    cron: Name | None = Field(
        None, description="Minute, hour, day of month, month, day of week.", examples=["30 3 * * MON"]
    )
    time_zone: Name | None = Field(
        None, description="The IANA's name of the zone that `cron` is in; UTC where none is given."
    )
    new_labels: int | None = Field(
        None,
        ge=1,
        le=1_000_000_000,
        description="So many newly accepted labels that the line's last dataset version does not hold.",
    )
    label_sources: list[Literal["human", "import", "sensor", "simulator"]] | None = Field(
        None,
        min_length=1,
        max_length=4,
        description="Whose labels `new_labels` counts; human and import where none is given.",
    )
    start: Literal["warm", "scratch"] = "warm"
    noise_seeds: list[Seed] = Field(default_factory=list, max_length=16)
    overrides: JsonObject = Field(default_factory=dict)


class MadeDataset(BaseModel):
    """The dataset version that a firing trained on."""

    id: uuid.UUID
    number: int


class MadeRun(Out):
    """A run that a firing started, the model version that it became, and the newest verdict on that."""

    id: uuid.UUID
    purpose: str
    seed: int
    state: str
    failure: str | None
    model_id: uuid.UUID | None
    model_number: int | None
    verdict: str | None


class FiringOut(BaseModel):
    """That a schedule fired, or why it could not, and what came of it."""

    id: uuid.UUID
    schedule_id: uuid.UUID
    due: datetime = Field(description="What it fired for: a cron's time, or when the last label needed was accepted.")
    fired_at: datetime
    asked_by: str | None = Field(description="Who ran it by hand.")
    new_labels: int | None
    skipped: str | None = Field(description="Why it made nothing.")
    job_id: uuid.UUID | None = Field(description="The freeze job.")
    job_state: str | None
    job_error: str | None
    dataset: MadeDataset | None
    runs: list[MadeRun]


class ScheduleOut(BaseModel):
    """A schedule, when it fires next, and its last firing."""

    id: uuid.UUID
    name: str
    line_id: uuid.UUID
    line: str
    cron: str | None
    time_zone: str | None
    new_labels: int | None
    label_sources: list[str] | None
    rule: str = Field(description="Its rule in words.")
    target_heads: list[str]
    start: str
    noise_seeds: list[int]
    overrides: dict[str, Any]
    state: Literal["active", "due", "waiting", "paused"]
    waits_for: str | None = Field(description="What keeps it from firing, although it is due.")
    waits_for_run_id: uuid.UUID | None
    next_due: datetime | None = Field(description="For a cron that is not paused.")
    counted: int | None = Field(description="New labels, when they were last counted.")
    needed: int | None = Field(description="So many new labels make it fire.")
    counted_at: datetime | None
    last: FiringOut | None
    created_by: str | None
    created_at: datetime
