"""Schedules of every so many seconds: rows that make a job due, again and again. A sweep fires them.

A due time fires exactly once. Those that retrain have other rules: `engine/stages/fire_retrains.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.jobs import ledger
from engine.jobs.kinds import job_kind
from engine.store.tables.metadata import new_id
from engine.store.tables.work import Job, Schedule, ScheduleFiring
from engine.store.unit_of_work import UnitOfWork

KEPT_DAYS = {"done": 1, "cancelled": 7, "dead": 7}
"""How long jobs of schedules are kept, by how they ended: what went well, every few seconds, tells least."""


def ensure(
    session: Session,
    *,
    project_id: uuid.UUID,
    name: str,
    job_kind_name: str,
    subject_id: uuid.UUID,
    every_s: int,
    payload: Mapping[str, Any] | None = None,
    enabled: bool = True,
) -> uuid.UUID:
    """Make the project's schedule of this name, or bring it up to date; a new one is due at once. Returns its id."""
    job_kind(job_kind_name)
    if every_s < 1:
        raise ValueError(f"schedule {name!r} must be at least 1 s apart, not {every_s}")
    values: dict[str, Any] = {
        "job_kind": job_kind_name,
        "job_subject_id": subject_id,
        "job_payload": dict(payload or {}),
        "every_s": every_s,
        "enabled": enabled,
    }
    statement = (
        insert(Schedule)
        .values(id=new_id(), project_id=project_id, name=name, next_due=func.clock_timestamp(), **values)
        .on_conflict_do_update(index_elements=["project_id", "name"], set_=values)
        .returning(Schedule.id)
    )
    return session.execute(statement).scalar_one()


def fire_due(unit: UnitOfWork, limit: int = 100) -> int:
    """Fire the schedules of seconds whose time has come; returns how many jobs that made.

    However many periods were missed, they are made up for by one job, and the next due time stays on the schedule's own
    grid. A schedule whose last job is still waiting or being worked on makes none: it would only queue behind it.
    """
    session = unit.session
    due = session.execute(
        select(Schedule)
        .where(Schedule.enabled, Schedule.every_s.is_not(None), Schedule.next_due <= func.statement_timestamp())
        .order_by(Schedule.next_due, Schedule.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    ).scalars()
    return sum(_fire(unit, schedule) for schedule in due.all())


def _fire(unit: UnitOfWork, schedule: Schedule) -> int:
    session = unit.session
    due = schedule.next_due
    missed = func.floor(func.extract("epoch", func.statement_timestamp() - due) / schedule.every_s)
    session.execute(
        update(Schedule)
        .where(Schedule.id == schedule.id)
        .values(next_due=due + func.make_interval(0, 0, 0, 0, 0, 0, (missed + 1) * schedule.every_s))
        .execution_options(synchronize_session=False)
    )
    last_state = session.execute(
        select(Job.state)
        .join(ScheduleFiring, ScheduleFiring.job_id == Job.id)
        .where(ScheduleFiring.schedule_id == schedule.id)
        .order_by(ScheduleFiring.due.desc())
        .limit(1)
    ).scalar_one_or_none()
    if last_state in ("due", "leased"):
        return 0
    _forget_old(session, schedule)
    job_id = ledger.enqueue(
        unit,
        kind=schedule.job_kind,
        project_id=schedule.project_id,
        subject_id=schedule.job_subject_id,
        dedupe_key=f"schedule:{schedule.id}:{due.isoformat()}",
        payload=schedule.job_payload,
    )
    if job_id is None:
        return 0
    session.execute(
        insert(ScheduleFiring).values(
            id=new_id(), project_id=schedule.project_id, schedule_id=schedule.id, due=due, job_id=job_id
        )
    )
    return 1


def _forget_old(session: Session, schedule: Schedule) -> None:
    """Firings are only needed around their due time, and a schedule that fires every few seconds makes many."""
    now = func.statement_timestamp()
    over = [and_(Job.state == state, ScheduleFiring.due < now - timedelta(days=d)) for state, d in KEPT_DAYS.items()]
    old = session.execute(
        delete(ScheduleFiring)
        .where(ScheduleFiring.schedule_id == schedule.id, Job.id == ScheduleFiring.job_id, or_(*over))
        .returning(ScheduleFiring.job_id)
    ).scalars()
    session.execute(delete(Job).where(Job.id.in_(old.all())))
