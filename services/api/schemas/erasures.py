"""Erasures, legal holds and retention, as they are told and asked for."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from engine.domain.erasure import Target
from services.api.schemas.fields import Name, Posted, Text


class TargetIn(Posted):
    """A vehicle, a drive (with its vehicle where several have one of that name), or a clip by its id."""

    vehicle: Name | None = Field(None, description="The vehicle's external id.")
    drive: Name | None = Field(None, description="The drive's external id.")
    clip: uuid.UUID | None = None

    def target(self) -> Target:
        """The same in the engine's terms."""
        return Target(self.vehicle, self.drive, self.clip)


class ErasureIn(TargetIn):
    """What is to be erased, and why. The reason is kept: name nobody in it."""

    reason: Text | None = None


class ErasureOut(BaseModel):
    """An erasure. `receipt` says what was removed by kind, and which frozen sets and models had used it."""

    id: uuid.UUID
    scope_kind: str
    scope_id: uuid.UUID
    state: str
    step: str | None
    refusal: str | None
    reason: str | None
    requested_by: str
    requested_at: datetime
    completed_at: datetime | None
    receipt: dict[str, Any] | None


class HoldIn(TargetIn):
    """What has to stay, and why."""

    reason: Text = Field(min_length=1)


class LiftIn(Posted):
    """Why a hold ends."""

    reason: Text = Field(min_length=1)


class HoldOut(BaseModel):
    """A legal hold; it stands while `lifted_at` is null. `scope_id` is null once what it held was erased."""

    id: uuid.UUID
    scope_kind: str
    scope_id: uuid.UUID | None
    reason: str
    placed_by: str
    placed_at: datetime
    lifted_by: str | None
    lifted_at: datetime | None
    lift_reason: str | None


class RetentionIn(Posted):
    """How many days after it was received a clip is erased; null for never."""

    keep_days: int | None = Field(ge=1, le=36_500)


class RetentionOut(BaseModel):
    """How long clips are kept at most. A clip's own `retain_until` ends it sooner, never later."""

    keep_days: int | None
    changed_by: str | None
    changed_at: datetime | None


ErasureState = Literal["due", "running", "done", "refused"]
