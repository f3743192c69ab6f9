"""Work: the ledger of jobs, and the schedules that make them due."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from engine.store.tables.metadata import CreatedAt, Id, InProject, Table


class Job(InProject, Table):
    """The row is the job; a message about it is only a hint."""

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint("state IN ('due', 'leased', 'done', 'dead', 'cancelled')", name="state"),
        CheckConstraint("(state = 'leased') = (lease_token IS NOT NULL)", name="lease"),
        # The claim's ORDER BY, to the letter.
        Index(
            "ix_jobs_claim", "kind", text("priority DESC"), "run_after", "id", postgresql_where=text("state = 'due'")
        ),
        Index("ix_jobs_leases", "lease_until", postgresql_where=text("state = 'leased'")),
        Index("ix_jobs_dispatch", "dispatched_at", postgresql_where=text("state = 'due'")),
        Index("ix_jobs_subject", "subject_id"),
        Index("ix_jobs_state", "state", "kind"),
    )

    id: Mapped[Id]
    kind: Mapped[str]
    subject_id: Mapped[uuid.UUID]
    dedupe_key: Mapped[str] = mapped_column(unique=True)
    payload: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(server_default="due")
    priority: Mapped[int] = mapped_column(server_default="0")
    resource_class: Mapped[str]
    attempt: Mapped[int] = mapped_column(server_default="0")
    max_attempts: Mapped[int]
    run_after: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    dispatched_at: Mapped[datetime | None]
    lease_owner: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    lease_token: Mapped[uuid.UUID | None]
    last_error: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class Schedule(InProject, Table):
    """A rule that makes a job due, again and again: every so many seconds, at a cron's times, or with new labels."""

    __tablename__ = "schedules"
    __table_args__ = (
        UniqueConstraint("project_id", "name"),
        CheckConstraint("num_nonnulls(every_s, cron, new_labels) = 1", name="one_rule"),
        CheckConstraint("(cron IS NULL) = (time_zone IS NULL)", name="cron_zone"),
        CheckConstraint("(new_labels IS NULL) = (label_sources IS NULL)", name="labels_of"),
    )

    id: Mapped[Id]
    name: Mapped[str]
    job_kind: Mapped[str]
    job_subject_id: Mapped[uuid.UUID]
    job_payload: Mapped[dict[str, Any]]
    every_s: Mapped[int | None]
    cron: Mapped[str | None]
    time_zone: Mapped[str | None]
    new_labels: Mapped[int | None]
    label_sources: Mapped[list[str] | None] = mapped_column(JSONB(none_as_null=True))
    # When it fires next; for a rule of new labels, when they are counted next.
    next_due: Mapped[datetime]
    enabled: Mapped[bool]
    # What was counted last, when, and how many there had to be: pages need not count again.
    counted: Mapped[int | None]
    counted_at: Mapped[datetime | None]
    needed: Mapped[int | None]
    created_by: Mapped[str | None]
    created_at: Mapped[CreatedAt]


class ScheduleFiring(InProject, Table):
    """That a schedule fired for a due time: unique, so that two tickers fire it once."""

    __tablename__ = "schedule_firings"
    __table_args__ = (
        UniqueConstraint("schedule_id", "due"),
        CheckConstraint("(job_id IS NULL) = (skipped IS NOT NULL)", name="made_or_skipped"),
    )

    id: Mapped[Id]
    schedule_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("schedules.id"))
    due: Mapped[datetime]
    job_id: Mapped[uuid.UUID | None]
    # Why it made no job.
    skipped: Mapped[str | None]
    # Who asked for it by hand, beside the rule.
    asked_by: Mapped[str | None]
    # For a rule of new labels: how many there were, and the dataset version that did not hold them.
    new_labels: Mapped[int | None]
    against_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("dataset_versions.id"))
    fired_at: Mapped[CreatedAt]
