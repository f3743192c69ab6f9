"""Retain: clips that nobody may keep any longer are erased by themselves, unless something holds them."""

from __future__ import annotations

import uuid

from sqlalchemy import ColumnElement, and_, exists, func, literal, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.domain.refusals import Invalid
from engine.jobs import ledger, schedules
from engine.stages.erasure_request import make_erasure
from engine.store import audit
from engine.store.holds import held
from engine.store.tables.access import Project
from engine.store.tables.metadata import new_id
from engine.store.tables.privacy import Erasure, RetentionPolicy
from engine.store.tables.recordings import Clip
from engine.store.unit_of_work import Database, UnitOfWork

EVERY_S = 3600
ACTOR = "retention"


def keep_days(session: Session, project_id: uuid.UUID) -> int | None:
    """How many days the project keeps a clip at most; none for ever."""
    return session.scalar(select(RetentionPolicy.keep_days).where(RetentionPolicy.project_id == project_id))


def set_retention(unit: UnitOfWork, project_id: uuid.UUID, days: int | None, actor: str) -> None:
    """Keep clips for so many days after they were received, or for ever. Raises Invalid."""
    if days is not None and not 0 < days <= 36_500:
        raise Invalid("invalid-retention", f"clips can't be kept for {days} days", "give 1 to 36500 days, or none")
    before = keep_days(unit.session, project_id)
    values = {"keep_days": days, "changed_by": actor, "changed_at": func.clock_timestamp()}
    unit.session.execute(
        insert(RetentionPolicy)
        .values(id=new_id(), project_id=project_id, **values)
        .on_conflict_do_update(index_elements=["project_id"], set_=values)
    )
    audit.note(
        unit.session, project_id, actor, "set retention", "project", project_id, {"from_days": before, "to_days": days}
    )
    ensure_retention_schedule(unit.session, project_id)


def ensure_retention_schedule(session: Session, project_id: uuid.UUID) -> None:
    """Have the project's clips looked through every hour."""
    schedules.ensure(
        session,
        project_id=project_id,
        name="retention",
        job_kind_name="expire",
        subject_id=project_id,
        every_s=EVERY_S,
    )


def ensure_all_retention_schedules(unit: UnitOfWork) -> int:
    """The same for every project; returns how many there are."""
    projects = unit.session.scalars(select(Project.id)).all()
    for project_id in projects:
        ensure_retention_schedule(unit.session, project_id)
    return len(projects)


def expired(project_id: uuid.UUID, days: int | None) -> ColumnElement[bool]:
    """Whether a clip has to go: its own time is over, or the project's, whichever ends first; and nothing holds it."""
    over = [Clip.retain_until <= func.statement_timestamp()]
    if days is not None:
        over.append(Clip.received_at <= func.statement_timestamp() - func.make_interval(0, 0, 0, literal(days)))
    return and_(Clip.project_id == project_id, Clip.state != "erased", or_(*over), ~held())


def expire(database: Database, lease: ledger.Lease) -> uuid.UUID | None:
    """Work an expire job of a project: the erasure that was begun, or none where nothing has expired.

    The erasure itself says which clips go, when it begins: a hold may come before it.
    """
    project_id = lease.subject_id
    with database.unit() as unit:
        ledger.complete(unit, lease)
        session = unit.session
        found = session.scalar(select(exists().where(expired(project_id, keep_days(session, project_id)))))
        live = session.scalar(
            select(
                exists().where(
                    Erasure.scope_kind == "expired",
                    Erasure.scope_id == project_id,
                    Erasure.state.in_(("due", "running")),
                )
            )
        )
        erasure = None
        if found and not live:
            erasure = make_erasure(unit, project_id, "expired", project_id, "its time was over", ACTOR)
            audit.note(session, project_id, ACTOR, "ask for erasure", "erasure", erasure.id, {"of": "expired"})
        unit.commit()
    return erasure.id if erasure else None
