"""Who may do what: projects, people's scoped tokens, devices' keys, what was answered to whom, and the audit."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from engine.store.tables.metadata import CreatedAt, Id, InProject, Table


class Project(Table):
    """One fleet, ontology and set of models."""

    __tablename__ = "projects"

    id: Mapped[Id]
    name: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[CreatedAt]


class Token(InProject, Table):
    """A person's or a service's token; the secret itself is never kept, only its SHA-256."""

    __tablename__ = "tokens"
    __table_args__ = (UniqueConstraint("project_id", "name"),)

    id: Mapped[Id]
    name: Mapped[str]
    secret_sha256: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[str]]
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class DeviceKey(InProject, Table):
    """A device's key. It may send for the vehicles bound to it, or for any vehicle of the project (a gateway)."""

    __tablename__ = "device_keys"
    __table_args__ = (UniqueConstraint("project_id", "name"),)

    id: Mapped[Id]
    name: Mapped[str]
    secret_sha256: Mapped[str] = mapped_column(unique=True)
    any_vehicle: Mapped[bool]
    created_at: Mapped[CreatedAt]
    revoked_at: Mapped[datetime | None]
    last_seen_at: Mapped[datetime | None]


class DeviceKeyVehicle(InProject, Table):
    """A vehicle, by its external id, that a device's key may send for."""

    __tablename__ = "device_key_vehicles"

    device_key_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("device_keys.id"), primary_key=True)
    vehicle_external_id: Mapped[str] = mapped_column(primary_key=True)


class IdempotencyKey(InProject, Table):
    """The answer that a principal's `Idempotency-Key` got, so that the same request gets it again."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        UniqueConstraint("project_id", "principal", "key"),
        # An erasure finds the answers that told of a clip or of labels.
        Index("ix_idempotency_keys_clip_id", text("(body ->> 'clip_id')")),
        Index("ix_idempotency_keys_label_ids", text("(body -> 'label_ids')"), postgresql_using="gin"),
    )

    id: Mapped[Id]
    principal: Mapped[str]
    key: Mapped[str]
    request_sha256: Mapped[str]
    status: Mapped[int]
    body: Mapped[dict[str, Any]]
    headers: Mapped[dict[str, Any]]
    created_at: Mapped[CreatedAt]


class AuditEntry(InProject, Table):
    """An act that changed what the fleet runs or who may do what."""

    __tablename__ = "audit_entries"
    __table_args__ = (Index(None, "project_id", "at"), Index("ix_audit_entries_object_id", "object_id"))

    id: Mapped[Id]
    at: Mapped[CreatedAt]
    actor: Mapped[str]
    act: Mapped[str]
    object_kind: Mapped[str]
    object_id: Mapped[str]
    details: Mapped[dict[str, Any]]
