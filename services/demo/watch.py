"""What of a line's work is left: counts that reach 0 when a stage is done."""

from __future__ import annotations

import uuid

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from engine.store.tables.labels import QueueItem
from engine.store.tables.models import GateReport, ModelLine, Run, Scoring
from engine.store.tables.recordings import Clip
from engine.store.tables.work import Job


def open_job(session: Session, job_id: uuid.UUID) -> int:
    return int(session.get_one(Job, job_id).state in ("due", "leased"))


def open_jobs(session: Session, kind: str, subject_id: uuid.UUID) -> int:
    return (
        session.scalar(
            select(func.count())
            .select_from(Job)
            .where(Job.kind == kind, Job.subject_id == subject_id, Job.state.in_(("due", "leased")))
        )
        or 0
    )


def unscored(session: Session, line_id: uuid.UUID) -> int:
    """Clips of the pool that the line's champion has not scored."""
    line = session.get_one(ModelLine, line_id)
    scored = select(Scoring.clip_id).where(Scoring.model_version_id == line.champion_id)
    return (
        session.scalar(
            select(func.count())
            .select_from(Clip)
            .where(Clip.project_id == line.project_id, Clip.split == "pool", Clip.id.not_in(scored))
        )
        or 0
    )


def unlabelled(session: Session, campaign_id: uuid.UUID) -> int:
    """Items of the campaign that nobody has answered yet."""
    return (
        session.scalar(
            select(func.count())
            .select_from(QueueItem)
            .where(QueueItem.campaign_id == campaign_id, QueueItem.state.in_(("queued", "open")))
        )
        or 0
    )


def untrained(session: Session, run_id: uuid.UUID) -> int:
    """Steps until the run is over, those of the runs before it included."""
    line = session.get_one(Run, run_id).line_id
    return _steps_left(session, Run.line_id == line, Run.id <= run_id)


def _steps_left(session: Session, *which: ColumnElement[bool]) -> int:
    """At least one for each run that is not over."""
    runs = session.scalars(select(Run).where(*which, Run.state.in_(("due", "running")))).all()
    return sum(max(1, int(run.plan["steps"]) - int(run.progress.get("step", 0))) for run in runs)


def newest_report(session: Session, model_id: uuid.UUID) -> GateReport | None:
    """What the gate said of the model last."""
    return session.scalars(
        select(GateReport).where(GateReport.challenger_id == model_id).order_by(GateReport.id.desc()).limit(1)
    ).one_or_none()


def died_since(session: Session, project_id: uuid.UUID, seconds: float) -> Job | None:
    """A job that died within the last so many seconds."""
    return session.scalars(
        select(Job)
        .where(
            Job.project_id == project_id,
            Job.state == "dead",
            Job.finished_at > func.clock_timestamp() - func.make_interval(0, 0, 0, 0, 0, 0, seconds),
        )
        .limit(1)
    ).one_or_none()
