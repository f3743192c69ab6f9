"""What goes and what must stay: erasures, the tombstones that they leave, legal holds, and how long clips are kept."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from engine.store.tables.metadata import CreatedAt, Id, InProject, Table


class Erasure(InProject, Table):
    """A request to erase, how far it is, and its receipt: what was removed, and what had used it.

    `scope_id` is the id of the vehicle, drive or clip; for "expired", what the retention sweep found, the project's.
    """

    __tablename__ = "erasures"
    __table_args__ = (
        CheckConstraint("scope_kind IN ('vehicle', 'drive', 'clip', 'expired')", name="scope_kind"),
        CheckConstraint("state IN ('due', 'running', 'done', 'refused')", name="state"),
        Index(
            "uq_erasures_live",
            "scope_kind",
            "scope_id",
            unique=True,
            postgresql_where=text("state IN ('due', 'running')"),
        ),
        Index("ix_erasures_scope_id", "scope_id"),
    )

    id: Mapped[Id]
    scope_kind: Mapped[str]
    scope_id: Mapped[uuid.UUID]
    state: Mapped[str] = mapped_column(server_default="due")
    step: Mapped[str | None]
    refusal: Mapped[str | None]
    reason: Mapped[str | None]
    requested_by: Mapped[str]
    requested_at: Mapped[CreatedAt]
    completed_at: Mapped[datetime | None]
    receipt: Mapped[dict[str, Any] | None]


class Tombstone(InProject, Table):
    """What stays of an erased thing: that it was, and that it went.

    `key` is a one-way hash of what it was called, so that it is known again when it is sent in again. A split group's
    tombstone remembers its split, which is decided once for ever.
    """

    __tablename__ = "tombstones"
    __table_args__ = (
        UniqueConstraint("project_id", "object_kind", "key"),
        Index("ix_tombstones_object_id", "object_id"),
        Index("ix_tombstones_erasure_id", "erasure_id"),
    )

    id: Mapped[Id]
    erasure_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("erasures.id"))
    object_kind: Mapped[str]
    object_id: Mapped[uuid.UUID | None]
    key: Mapped[str]
    split: Mapped[str | None]
    erased_at: Mapped[CreatedAt]


class ErasedBlob(InProject, Table):
    """Bytes whose row is gone and whose file is still to be removed; the row goes with the file."""

    __tablename__ = "erased_blobs"

    erasure_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("erasures.id"), primary_key=True)
    sha256: Mapped[str] = mapped_column(primary_key=True)


class ErasedTask(InProject, Table):
    """A task of something erased that the label tool may still have; the row goes when the tool has it no more."""

    __tablename__ = "erased_tasks"

    erasure_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("erasures.id"), primary_key=True)
    task_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)  # the key in the tool's data
    ontology_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("ontologies.id"))
    tool_project: Mapped[int | None]
    seen: Mapped[bool] = mapped_column(server_default="false")  # the tool had it when it was asked


class LegalHold(InProject, Table):
    """That a vehicle, a drive or a clip must stay, whoever asks and however old it is, until the hold is lifted."""

    __tablename__ = "legal_holds"
    __table_args__ = (
        CheckConstraint("scope_kind IN ('vehicle', 'drive', 'clip')", name="scope_kind"),
        CheckConstraint("(lifted_at IS NULL) = (lifted_by IS NULL)", name="lifted"),
        Index("ix_legal_holds_scope_id", "scope_id"),
    )

    id: Mapped[Id]
    scope_kind: Mapped[str]
    scope_id: Mapped[uuid.UUID | None]  # none once what it held was erased, after the hold was lifted
    reason: Mapped[str]
    placed_by: Mapped[str]
    placed_at: Mapped[CreatedAt]
    lifted_by: Mapped[str | None]
    lifted_at: Mapped[datetime | None]
    lift_reason: Mapped[str | None]


class RetentionPolicy(InProject, Table):
    """How long a project keeps clips at most. A clip's own `retain_until` may end it sooner, never later."""

    __tablename__ = "retention_policies"
    __table_args__ = (UniqueConstraint("project_id"), CheckConstraint("keep_days > 0", name="keep_days"))

    id: Mapped[Id]
    keep_days: Mapped[int | None]
    changed_by: Mapped[str]
    changed_at: Mapped[CreatedAt]
