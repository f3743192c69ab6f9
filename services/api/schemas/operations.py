"""Jobs, devices and tokens, as they are told and asked for."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from pydantic import AwareDatetime, BaseModel, Field

from services.api.schemas.fields import Name, Posted


class JobOut(BaseModel):
    """A piece of work, and how it goes."""

    id: uuid.UUID
    kind: str
    subject_id: uuid.UUID
    dedupe_key: str
    payload: dict[str, Any]
    state: str
    priority: int
    resource_class: str
    attempt: int
    max_attempts: int
    run_after: datetime
    lease_owner: str | None
    lease_until: datetime | None
    last_error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class DeviceIn(Posted):
    """A device sends for the vehicles that are named, or, a gateway, for any."""

    name: Name
    vehicles: list[Name] = Field(default_factory=list, max_length=10_000)
    any_vehicle: bool = False


class DeviceOut(BaseModel):
    """A device, without its secret, which nobody has."""

    id: uuid.UUID
    name: str
    any_vehicle: bool
    vehicles: list[str]
    created_at: datetime
    revoked_at: datetime | None
    last_seen_at: datetime | None


class SecretOut(BaseModel):
    """The only time that the secret is told."""

    id: uuid.UUID
    name: str
    secret: str


class TokenIn(Posted):
    """A token for a person or a service."""

    name: Name
    scopes: list[Name] = Field(min_length=1, max_length=64)
    expires_at: AwareDatetime | None = None


class TokenOut(BaseModel):
    """A token, without its secret, which nobody has."""

    id: uuid.UUID
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
