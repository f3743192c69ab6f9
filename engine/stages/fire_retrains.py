"""Fire the schedules that retrain: at a cron's times, or once enough newly accepted labels are there.

A due time fires once, whoever ticks: the schedule's row is locked, a firing is unique by its due time, and so is its
job. A due time that nobody was there for, or that came while the line was being retrained, stays due: it is made up
for once, however many others went by meanwhile.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from engine.domain.refusals import Refused
from engine.jobs.cron import next_time
from engine.stages import retrain
from engine.store.labels_to_freeze import accepted_at, count_new, last_version_id
from engine.store.line_work import busy_with
from engine.store.lines import get_line
from engine.store.tables.metadata import new_id
from engine.store.tables.models import ModelLine
from engine.store.tables.work import Schedule, ScheduleFiring
from engine.store.unit_of_work import Database, UnitOfWork

COUNT_EVERY_S = 30.0
"""New labels are counted this often, which takes about a second where there are a million."""


@dataclass(frozen=True)
class Counted:
    """New labels of a line, against the dataset version that was its last."""

    version_id: uuid.UUID | None
    labels: int


def fire_retrains(database: Database) -> int:
    """Fire what is due and whose line is free; returns how many retrainings that made. Each is a unit of its own."""
    with database.read() as session:
        due = session.scalars(
            select(Schedule.id)
            .where(Schedule.enabled, Schedule.every_s.is_(None), Schedule.next_due <= func.statement_timestamp())
            .order_by(Schedule.next_due, Schedule.id)
        ).all()
    fired = 0
    for schedule_id in due:
        with database.unit() as unit:
            fired += _fire_if_due(unit, schedule_id)
            unit.commit()
    return fired


def _fire_if_due(unit: UnitOfWork, schedule_id: uuid.UUID) -> bool:
    session = unit.session
    schedule = session.execute(
        select(Schedule)
        .where(Schedule.id == schedule_id, Schedule.enabled, Schedule.next_due <= func.statement_timestamp())
        .with_for_update(skip_locked=True)
    ).scalar_one_or_none()
    if schedule is None:
        return False  # another ticker has it, or had it
    now = session.execute(select(func.clock_timestamp())).scalar_one()
    if schedule.new_labels is None:
        return _fire_cron(unit, schedule, now)
    return _fire_labels(unit, schedule, now)


def _fire_cron(unit: UnitOfWork, schedule: Schedule, now: datetime) -> bool:
    session, due = unit.session, schedule.next_due
    line = get_line(session, schedule.job_subject_id, lock=True)
    if busy_with(session, line.id) is not None:
        return False  # it stays due, and so fires as soon as the line is free
    assert schedule.cron is not None
    assert schedule.time_zone is not None
    try:
        schedule.next_due = next_time(schedule.cron, schedule.time_zone, max(now, due))
    except Refused as refused:
        # It was checked when it was made, but not by this machine, whose list of time zones may be another one.
        schedule.enabled = False
        _record(session, schedule, due, skipped=f"paused: {refused.detail}; {refused.hint}")
        return False
    return fire(unit, schedule, line, due) is not None


def _fire_labels(unit: UnitOfWork, schedule: Schedule, now: datetime) -> bool:
    session = unit.session
    assert schedule.new_labels is not None
    schedule.next_due = now + timedelta(seconds=COUNT_EVERY_S)
    line = get_line(session, schedule.job_subject_id)
    busy = busy_with(session, line.id)
    if busy is not None and busy.run_id is None:
        return False  # what is new is about to be held by a version
    counted = count(session, schedule, line)
    schedule.counted, schedule.counted_at = counted.labels, now
    schedule.needed = schedule.new_labels + _counted_before(session, schedule, counted.version_id)
    if counted.labels < schedule.needed:
        return False
    due = accepted_at(session, line, counted.version_id, schedule.label_sources or (), schedule.needed)
    get_line(session, line.id, lock=True)
    # Counting took its time. With the line held no version can be added, and no other retraining begin.
    if due is None or last_version_id(session, line.id) != counted.version_id or busy_with(session, line.id):
        return False
    # The label that completed the number can have done so before, against another version: then it is due now.
    return (fire(unit, schedule, line, due, counted) or fire(unit, schedule, line, now, counted)) is not None


def count(session: Session, schedule: Schedule, line: ModelLine) -> Counted:
    """The labels of the schedule's sources that the line's last dataset version does not hold."""
    version_id = last_version_id(session, line.id)
    return Counted(version_id, count_new(session, line, version_id, schedule.label_sources or ()))


def _counted_before(session: Session, schedule: Schedule, version_id: uuid.UUID | None) -> int:
    """How many of the new labels made it fire already, without becoming a version: the freeze has died, say.

    Only as many again as its rule says make it fire again; else a freeze that can't be done would be tried for ever.
    """
    return (
        session.scalar(
            select(ScheduleFiring.new_labels)
            .where(
                ScheduleFiring.schedule_id == schedule.id,
                ScheduleFiring.against_id.is_not_distinct_from(version_id),
                ScheduleFiring.new_labels.is_not(None),
            )
            .order_by(ScheduleFiring.fired_at.desc())
            .limit(1)
        )
        or 0
    )


def fire(
    unit: UnitOfWork,
    schedule: Schedule,
    line: ModelLine,
    due: datetime,
    counted: Counted | None = None,
    asked_by: str | None = None,
) -> uuid.UUID | None:
    """Make the retraining due and the firing a row; returns the job, or None where this due time has fired already.

    The caller holds the rows of the schedule and of the line.
    """
    key = f"freeze:{line.id}:{schedule.id}:{due.isoformat()}"
    job_id = retrain.enqueue(unit, line, key, schedule.job_payload)
    if job_id is None:
        return None
    if counted is not None:
        schedule.counted = schedule.needed = schedule.counted_at = None  # until there is a version to count against
    _record(unit.session, schedule, due, job_id=job_id, counted=counted, asked_by=asked_by)
    return job_id


def _record(
    session: Session,
    schedule: Schedule,
    due: datetime,
    *,
    job_id: uuid.UUID | None = None,
    skipped: str | None = None,
    counted: Counted | None = None,
    asked_by: str | None = None,
) -> None:
    session.execute(
        insert(ScheduleFiring).values(
            id=new_id(),
            project_id=schedule.project_id,
            schedule_id=schedule.id,
            due=due,
            job_id=job_id,
            skipped=skipped,
            asked_by=asked_by,
            new_labels=counted.labels if counted else None,
            against_id=counted.version_id if counted else None,
        )
    )
    session.flush()
