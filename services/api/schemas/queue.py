"""The label queue and campaigns, as they are told and asked for."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from services.api.schemas.fields import JsonObject, Name, Posted, Text


class QueueItemOut(BaseModel):
    """A subject that a campaign wants labelled, and why."""

    id: uuid.UUID
    campaign_id: uuid.UUID
    campaign: str
    selection_id: uuid.UUID
    subject_id: uuid.UUID
    clip_id: uuid.UUID | None
    stream: str | None
    pts: int | None
    capture_ns: int | None
    ontology_id: uuid.UUID
    model_version_id: uuid.UUID | None
    trigger_sha256: str
    arm: str
    inclusion_probability: float | None
    seed: int
    reason: dict[str, Any]
    heads: list[str]
    priority: float
    state: str
    task_id: uuid.UUID | None
    tool_project: int | None
    tool_task: int | None
    picture: str | None = Field(description="A signed link that expires; null until the picture is pinned.")
    created_at: datetime
    updated_at: datetime


class PrioritiseIn(Posted):
    """A higher priority is labelled first."""

    priority: float = Field(ge=-1e9, le=1e9)


class DropIn(Posted):
    """Why it goes."""

    reason: Text | None = None


class TriggerIn(Posted):
    """A named rule with its parameters."""

    name: Name
    parameters: JsonObject = Field(default_factory=dict)


class CampaignIn(Posted):
    """A campaign to be made."""

    name: Name
    line: Name = Field(description="Name of the model line whose uncertainty counts.")
    heads: list[Name] = Field(min_length=1, max_length=64)
    budget: int = Field(ge=1, le=10_000_000, description="Items that it may choose in all.")
    batch_size: int = Field(ge=1, le=100_000, description="Items that it chooses at a time.")
    triggers: list[TriggerIn] = Field(default_factory=list, max_length=32)
    control_fraction: float = Field(0.1, ge=0, le=1, description="Random part of every batch.")
    priority: int = Field(0, ge=-1_000_000, le=1_000_000)
    seed: int = Field(0, ge=0, le=2**31 - 1)
    settings: JsonObject = Field(default_factory=dict)


class CampaignChange(Posted):
    """What is given changes."""

    state: Literal["active", "paused", "ended"] | None = None
    budget: int | None = Field(None, ge=1, le=10_000_000)
    batch_size: int | None = Field(None, ge=1, le=100_000)
    priority: int | None = Field(None, ge=-1_000_000, le=1_000_000)


class CampaignOut(BaseModel):
    """A campaign, and how many of its items are in which state."""

    id: uuid.UUID
    name: str
    line_id: uuid.UUID
    state: str
    triggers: list[dict[str, Any]]
    trigger_sha256: str
    heads: list[str]
    budget: int
    spent: int
    batch_size: int
    control_fraction: float
    priority: int
    seed: int
    settings: dict[str, Any]
    golden_set_id: uuid.UUID | None
    items: dict[str, int]
    created_at: datetime


class JobStarted(BaseModel):
    """Work that was made due; look at it with GET /v1/jobs/{job_id}."""

    job_id: uuid.UUID
