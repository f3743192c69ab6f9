"""Schedule retrainings of a line: make, pause, resume, run now, remove."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.exc import IntegrityError

from engine.domain.refusals import Conflict, Invalid, NotFound
from engine.jobs.cron import next_time
from engine.stages import retrain
from engine.stages.fire_retrains import count, fire
from engine.store import audit
from engine.store.line_work import busy_with
from engine.store.lines import get_line, line_by_name
from engine.store.tables.metadata import new_id
from engine.store.tables.work import Schedule, ScheduleFiring
from engine.store.unit_of_work import UnitOfWork

SOURCES = ("human", "import", "sensor", "simulator")
"""Sources whose labels can be counted. A model's own ("auto") are accepted by nobody."""
USUAL_SOURCES = ("human", "import")


@dataclass(frozen=True)
class ScheduleRequest:
    """A schedule to be made. Its rule is a cron expression in a time zone, or a number of new labels, one of the two.

    `target_heads`, `start`, `noise_seeds` and `overrides` are those of every retraining that it makes; each has a seed
    of its own.
    """

    name: str
    line: str
    target_heads: Sequence[str]
    cron: str | None = None
    time_zone: str | None = None
    new_labels: int | None = None
    label_sources: Sequence[str] | None = None
    start: str = "warm"
    noise_seeds: Sequence[int] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)


def make_schedule(unit: UnitOfWork, project_id: uuid.UUID, request: ScheduleRequest, actor: str) -> Schedule:
    """A new schedule, which is on. Raises NotFound, Invalid, Conflict, OntologyError."""
    session = unit.session
    _check_rule(request)
    if ":" in request.name:
        raise Invalid("invalid-name", "a schedule's name has no colon", "those with one are the engine's own")
    line = line_by_name(session, project_id, request.line)
    payload = retrain.checked(
        session,
        line,
        target_heads=request.target_heads,
        start=request.start,
        noise_seeds=request.noise_seeds,
        overrides=request.overrides,
    )
    now = session.execute(select(func.clock_timestamp())).scalar_one()
    zone = (request.time_zone or "UTC") if request.cron is not None else None
    sources = list(request.label_sources or USUAL_SOURCES) if request.new_labels is not None else None
    schedule = Schedule(
        id=new_id(),
        project_id=project_id,
        name=request.name,
        job_kind="freeze",
        job_subject_id=line.id,
        job_payload=payload,
        cron=request.cron,
        time_zone=zone,
        new_labels=request.new_labels,
        label_sources=sources,
        next_due=next_time(request.cron, zone, now) if request.cron is not None and zone is not None else now,
        enabled=True,
        created_by=actor,
    )
    session.add(schedule)
    try:
        session.flush()
    except IntegrityError as error:
        raise Conflict(
            "name-taken", f"there is a schedule {request.name!r} already", "choose another name, or remove that one"
        ) from error
    rule = {"cron": request.cron, "time_zone": zone, "new_labels": request.new_labels, "label_sources": sources}
    _note(unit, schedule, "schedule", actor, line=line.name, **rule, **payload)
    return schedule


def pause(unit: UnitOfWork, project_id: uuid.UUID, schedule_id: uuid.UUID, actor: str) -> None:
    """Let it rest; a paused one stays as it is. A retraining that it has made goes on. Raises NotFound."""
    schedule = _locked(unit, project_id, schedule_id)
    if schedule.enabled:
        schedule.enabled = False
        _note(unit, schedule, "pause", actor)


def resume(unit: UnitOfWork, project_id: uuid.UUID, schedule_id: uuid.UUID, actor: str) -> None:
    """Let it go on from now: due times of the pause are not made up for, new labels of the pause count.

    Raises NotFound, and Invalid where its time zone is not known any more.
    """
    schedule = _locked(unit, project_id, schedule_id)
    if not schedule.enabled:
        now = unit.session.execute(select(func.clock_timestamp())).scalar_one()
        if schedule.cron is not None and schedule.time_zone is not None:
            schedule.next_due = next_time(schedule.cron, schedule.time_zone, now)
        else:
            schedule.next_due = now
        schedule.enabled = True
        _note(unit, schedule, "resume", actor)


def run_now(unit: UnitOfWork, project_id: uuid.UUID, schedule_id: uuid.UUID, actor: str) -> uuid.UUID:
    """Make its retraining due now, beside its rule, also while it is paused; returns the job.

    Raises NotFound, and Conflict while the line is being retrained.
    """
    session = unit.session
    schedule = _locked(unit, project_id, schedule_id)
    line = get_line(session, schedule.job_subject_id, lock=True)
    busy = busy_with(session, line.id)
    if busy is not None:
        raise Conflict(
            "line-busy", f"schedule {schedule.name!r} can't run now: {busy.told}", "ask again when that is over"
        )
    now = session.execute(select(func.clock_timestamp())).scalar_one()
    counted = count(session, schedule, line) if schedule.new_labels is not None else None
    job_id = fire(unit, schedule, line, now, counted, asked_by=actor)
    assert job_id is not None  # this moment comes once, and the schedule's row is held
    _note(unit, schedule, "run_now", actor, job=str(job_id))
    return job_id


def remove(unit: UnitOfWork, project_id: uuid.UUID, schedule_id: uuid.UUID, actor: str) -> None:
    """Remove it and the list of its firings. What it made stays, and goes on. Raises NotFound."""
    schedule = _locked(unit, project_id, schedule_id)
    unit.session.execute(delete(ScheduleFiring).where(ScheduleFiring.schedule_id == schedule_id))
    unit.session.delete(schedule)
    _note(unit, schedule, "unschedule", actor)
    unit.session.flush()


def _check_rule(request: ScheduleRequest) -> None:
    if (request.cron is None) == (request.new_labels is None):
        raise Invalid(
            "one-rule",
            "a schedule has one rule: a cron expression, or a number of new labels",
            "give `cron` or `new_labels`, not both; for both make two schedules",
        )
    if request.cron is None and request.time_zone is not None:
        raise Invalid("one-rule", "a time zone is for a cron expression", "leave `time_zone` out, or give `cron`")
    if request.new_labels is None and request.label_sources is not None:
        raise Invalid("one-rule", "sources are for new labels", "leave `label_sources` out, or give `new_labels`")
    if request.new_labels is not None and request.new_labels < 1:
        raise Invalid("one-rule", f"{request.new_labels} new labels are there at any time", "give 1 or more")
    strange = sorted(set(request.label_sources or ()) - set(SOURCES))
    if strange:
        raise Invalid(
            "unknown-source", f"labels of the source {strange[0]!r} are not counted", f"give of: {', '.join(SOURCES)}"
        )


def _locked(unit: UnitOfWork, project_id: uuid.UUID, schedule_id: uuid.UUID) -> Schedule:
    schedule = unit.session.execute(
        select(Schedule)
        .where(Schedule.project_id == project_id, Schedule.id == schedule_id, Schedule.job_kind == "freeze")
        .with_for_update()
    ).scalar_one_or_none()
    if schedule is None:
        raise NotFound("no-such-schedule", f"there is no schedule {schedule_id}", "list them with GET /v1/schedules")
    return schedule


def _note(unit: UnitOfWork, schedule: Schedule, act: str, actor: str, **details: Any) -> None:
    name = {"schedule": schedule.name}
    audit.note(unit.session, schedule.project_id, actor, act, "schedule", schedule.id, name | details)
