"""Schedules that retrain: when each fires next, what it waits for, and what its firings made."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from engine.domain.refusals import NotFound
from engine.jobs.cron import explained
from engine.queries.records import one, page
from engine.store.line_work import busy_with
from engine.store.tables.labels import DatasetVersion
from engine.store.tables.models import GateReport, ModelLine, ModelVersion, Run
from engine.store.tables.work import Job, Schedule, ScheduleFiring


def listing(
    session: Session, project_id: uuid.UUID, limit: int, after: uuid.UUID | None = None, line: str | None = None
) -> list[dict[str, Any]]:
    """Schedules in the order of their making, each with its last firing."""
    query = _schedules(project_id)
    if line is not None:
        query = query.where(ModelLine.name == line)
    return _told(session, page(session, query, Schedule.id, limit, after))


def detail(session: Session, project_id: uuid.UUID, schedule_id: uuid.UUID) -> dict[str, Any]:
    """One schedule. Raises NotFound."""
    query = _schedules(project_id).where(Schedule.id == schedule_id)
    return _told(session, [one(session, query, "schedule", schedule_id, "schedules")])[0]


def id_of(session: Session, project_id: uuid.UUID, name: str) -> uuid.UUID:
    """The schedule of this name. Raises NotFound, naming those that there are."""
    names = {row[0].name: row[0].id for row in session.execute(_schedules(project_id).order_by(Schedule.name))}
    if name not in names:
        there = ", ".join(names) or "none yet; make one with `longtail schedules add`"
        raise NotFound("no-such-schedule", f"there is no schedule {name!r}", f"there are: {there}")
    found: uuid.UUID = names[name]
    return found


def firings(
    session: Session,
    project_id: uuid.UUID,
    limit: int,
    after: uuid.UUID | None = None,
    schedule_id: uuid.UUID | None = None,
) -> list[dict[str, Any]]:
    """Firings, the newest first, with what each made."""
    query = (
        select(ScheduleFiring, Schedule.name)
        .join(Schedule, Schedule.id == ScheduleFiring.schedule_id)
        .where(ScheduleFiring.project_id == project_id, Schedule.job_kind == "freeze")
    )
    if schedule_id is not None:
        query = query.where(ScheduleFiring.schedule_id == schedule_id)
    rows = page(session, query, ScheduleFiring.id, limit, after, newest_first=True)
    made = _made(session, [firing for firing, _ in rows])
    return [made[firing.id] | {"schedule": name} for firing, name in rows]


def _schedules(project_id: uuid.UUID) -> Select[*tuple[Any, ...]]:
    return (
        select(Schedule, ModelLine.name)
        .join(ModelLine, ModelLine.id == Schedule.job_subject_id)
        .where(Schedule.project_id == project_id, Schedule.job_kind == "freeze")
    )


def _told(session: Session, rows: Sequence[Any]) -> list[dict[str, Any]]:
    schedules = [schedule for schedule, _ in rows]
    now = session.execute(select(func.clock_timestamp())).scalar_one()
    newest = session.scalars(
        select(ScheduleFiring)
        .ext(distinct_on(ScheduleFiring.schedule_id))
        .where(ScheduleFiring.schedule_id.in_([schedule.id for schedule in schedules]))
        .order_by(ScheduleFiring.schedule_id, ScheduleFiring.fired_at.desc())
    ).all()
    made = _made(session, newest)
    last = {firing.schedule_id: made[firing.id] for firing in newest}
    return [_one(session, schedule, line, last.get(schedule.id), now) for schedule, line in rows]


def _one(session: Session, schedule: Schedule, line: str, last: dict[str, Any] | None, now: datetime) -> dict[str, Any]:
    by_labels = schedule.new_labels is not None
    state, waits_for, run_id = "active", None, None
    if not schedule.enabled:
        state = "paused"
    elif _is_due(schedule, now):
        busy = busy_with(session, schedule.job_subject_id)
        if busy is None:
            state, waits_for = "due", "the next tick of a worker"
        else:
            state, waits_for, run_id = "waiting", busy.told, busy.run_id
    return {
        "id": schedule.id,
        "name": schedule.name,
        "line_id": schedule.job_subject_id,
        "line": line,
        "cron": schedule.cron,
        "time_zone": schedule.time_zone,
        "new_labels": schedule.new_labels,
        "label_sources": schedule.label_sources,
        "rule": _rule(schedule),
        "target_heads": schedule.job_payload["target_heads"],
        "start": schedule.job_payload["start"],
        "noise_seeds": schedule.job_payload["noise_seeds"],
        "overrides": schedule.job_payload["overrides"],
        "state": state,
        "waits_for": waits_for,
        "waits_for_run_id": run_id,
        "next_due": schedule.next_due if schedule.enabled and not by_labels else None,
        "counted": schedule.counted,
        "needed": schedule.needed if schedule.needed is not None else schedule.new_labels,
        "counted_at": schedule.counted_at,
        "last": last,
        "created_by": schedule.created_by,
        "created_at": schedule.created_at,
    }


def _is_due(schedule: Schedule, now: datetime) -> bool:
    if schedule.new_labels is None:
        return schedule.next_due <= now
    return schedule.counted is not None and schedule.needed is not None and schedule.counted >= schedule.needed


def _rule(schedule: Schedule) -> str:
    """The rule in words."""
    if schedule.cron is not None:
        return f"{explained(schedule.cron)}, {schedule.time_zone}"
    return f"at {schedule.new_labels} new labels ({', '.join(schedule.label_sources or ())})"


def _made(session: Session, rows: Sequence[ScheduleFiring]) -> Mapping[uuid.UUID, dict[str, Any]]:
    """By firing's id: the firing, how its job went, and the dataset version and runs that came of it."""
    ids = [firing.job_id for firing in rows if firing.job_id is not None]
    jobs = {job.id: job for job in session.scalars(select(Job).where(Job.id.in_(ids)))}
    runs: dict[uuid.UUID, list[dict[str, Any]]] = defaultdict(list)
    datasets: dict[uuid.UUID, dict[str, Any]] = {}
    found = session.execute(
        select(Run, DatasetVersion.number, ModelVersion.id, ModelVersion.number)
        .join(DatasetVersion, DatasetVersion.id == Run.dataset_version_id)
        .outerjoin(ModelVersion, ModelVersion.run_id == Run.id)
        .where(Run.freeze_job_id.in_(ids))
        .order_by(Run.id)
    ).all()
    verdicts = _verdicts(session, [model_id for _, _, model_id, _ in found if model_id is not None])
    for run, dataset_number, model_id, model_number in found:
        assert run.freeze_job_id is not None
        datasets[run.freeze_job_id] = {"id": run.dataset_version_id, "number": dataset_number}
        runs[run.freeze_job_id].append(
            {
                "id": run.id,
                "purpose": run.purpose,
                "seed": run.seed,
                "state": run.state,
                "failure": run.failure,
                "model_id": model_id,
                "model_number": model_number,
                "verdict": verdicts.get(model_id),
            }
        )
    told = {}
    for firing in rows:
        job = jobs.get(firing.job_id) if firing.job_id is not None else None
        told[firing.id] = {
            "id": firing.id,
            "schedule_id": firing.schedule_id,
            "due": firing.due,
            "fired_at": firing.fired_at,
            "asked_by": firing.asked_by,
            "new_labels": firing.new_labels,
            "skipped": firing.skipped,
            "job_id": firing.job_id,
            "job_state": job.state if job else None,
            "job_error": job.last_error if job and job.state != "done" else None,
            "dataset": datasets.get(firing.job_id) if firing.job_id is not None else None,
            "runs": runs.get(firing.job_id, []) if firing.job_id is not None else [],
        }
    return told


def _verdicts(session: Session, model_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID | None, str]:
    """What the newest gate report of each model version says."""
    rows = session.execute(
        select(GateReport.challenger_id, GateReport.verdict)
        .ext(distinct_on(GateReport.challenger_id))
        .where(GateReport.challenger_id.in_(model_ids))
        .order_by(GateReport.challenger_id, GateReport.id.desc())
    )
    return {challenger_id: verdict for challenger_id, verdict in rows}
