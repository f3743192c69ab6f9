"""The loop at a glance: what has come in, what waits at each stage, who is champion, and what is stuck."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from engine.jobs.kinds import JOB_KINDS
from engine.store.lines import newest_golden_set
from engine.store.tables.labels import Campaign, DatasetVersion, Label, LabelTask, QueueItem
from engine.store.tables.models import GateReport, ModelLine, ModelVersion, Promotion, Run
from engine.store.tables.recordings import Clip, Frame
from engine.store.tables.work import Job

STUCK_AFTER_S = 120  # a job that is due this long without being claimed has no worker


def overview(session: Session, project_id: uuid.UUID) -> dict[str, Any]:
    """Counts by state for each stage, the model lines, and what needs a person."""
    return {
        "clips": _counts(session, Clip.state, Clip.project_id == project_id),
        "golden_clips": session.scalar(
            select(func.count()).where(Clip.project_id == project_id, Clip.split == "golden")
        ),
        "frames": session.scalar(select(func.count()).select_from(Frame).where(Frame.project_id == project_id)),
        "queue": _counts(session, QueueItem.state, QueueItem.project_id == project_id),
        "arms": _counts(session, QueueItem.arm, QueueItem.project_id == project_id),
        "tasks": _counts(session, LabelTask.state, LabelTask.project_id == project_id),
        "labels": _counts(session, Label.head, Label.project_id == project_id, Label.superseded_by_id.is_(None)),
        "label_sources": _counts(
            session, Label.source, Label.project_id == project_id, Label.superseded_by_id.is_(None)
        ),
        "datasets": session.scalar(select(func.count()).where(DatasetVersion.project_id == project_id)),
        "runs": _counts(session, Run.state, Run.project_id == project_id),
        "gate": _counts(session, GateReport.verdict, GateReport.project_id == project_id),
        "campaigns": [
            {
                "id": campaign.id,
                "name": campaign.name,
                "state": campaign.state,
                "budget": campaign.budget,
                "spent": campaign.spent,
                "heads": campaign.heads,
            }
            for campaign in session.scalars(
                select(Campaign)
                .where(Campaign.project_id == project_id)
                .order_by(Campaign.priority.desc(), Campaign.id)
            )
        ],
        "lines": [_line(session, line) for line in _lines(session, project_id)],
        "jobs": _jobs(session, project_id),
        "stuck": _stuck(session, project_id),
    }


def _counts(session: Session, column: Any, *where: Any) -> dict[str, int]:
    rows = session.execute(select(column, func.count()).where(*where).group_by(column).order_by(column))
    return {str(value): count for value, count in rows}


def _lines(session: Session, project_id: uuid.UUID) -> list[ModelLine]:
    return list(session.scalars(select(ModelLine).where(ModelLine.project_id == project_id).order_by(ModelLine.id)))


def _line(session: Session, line: ModelLine) -> dict[str, Any]:
    champion = session.get(ModelVersion, line.champion_id) if line.champion_id else None
    golden = newest_golden_set(session, line.id)
    report = session.scalars(
        select(GateReport).where(GateReport.line_id == line.id).order_by(GateReport.id.desc()).limit(1)
    ).one_or_none()
    since = session.scalar(select(func.max(Promotion.at)).where(Promotion.line_id == line.id))
    running = session.scalars(
        select(Run).where(Run.line_id == line.id, Run.state == "running").order_by(Run.id).limit(1)
    ).one_or_none()
    return {
        "id": line.id,
        "name": line.name,
        "champion": champion.number if champion else None,
        "champion_id": line.champion_id,
        "champion_since": since,
        "versions": session.scalar(select(func.count()).where(ModelVersion.line_id == line.id)),
        # Selection waits for the whole pool to be scored by the champion; until then it ranks by the model before.
        "selects_by_champion": line.selection_model_id == line.champion_id,
        "golden_set": f"{golden.name} v{golden.version}" if golden else None,
        "last_report": {"id": report.id, "verdict": report.verdict, "reasons": report.reasons} if report else None,
        "running": {"id": running.id, "progress": running.progress} if running else None,
    }


def _jobs(session: Session, project_id: uuid.UUID) -> list[dict[str, Any]]:
    rows = session.execute(
        select(Job.kind, Job.state, func.count()).where(Job.project_id == project_id).group_by(Job.kind, Job.state)
    )
    found: dict[str, dict[str, int]] = {kind: {} for kind in JOB_KINDS}
    for kind, state, count in rows:
        found.setdefault(kind, {})[state] = count
    return [
        {"kind": kind, "queue": JOB_KINDS[kind].queue if kind in JOB_KINDS else None, "states": states}
        for kind, states in found.items()
    ]


def _stuck(session: Session, project_id: uuid.UUID) -> list[dict[str, str]]:
    """What a person should look at, each with what to do."""
    found = []
    dead = _counts(session, Job.kind, Job.project_id == project_id, Job.state == "dead")
    for kind, count in dead.items():
        found.append(
            {
                "what": f"{count} {kind} job{'s' if count > 1 else ''} died",
                "do": f"see why with `longtail jobs list --state dead --kind {kind}`, then `longtail jobs retry ID`",
            }
        )
    late = session.execute(
        select(Job.kind, func.count())
        .where(
            Job.project_id == project_id,
            Job.state == "due",
            Job.run_after < func.statement_timestamp() - func.make_interval(0, 0, 0, 0, 0, 0, STUCK_AFTER_S),
            Job.kind.not_in(
                # A worker that is busy with this kind will come to the rest of them.
                select(Job.kind).where(Job.project_id == project_id, Job.state == "leased")
            ),
        )
        .group_by(Job.kind)
    )
    for kind, count in late:
        queue = JOB_KINDS[kind].queue if kind in JOB_KINDS else kind
        found.append(
            {
                "what": f"{count} {kind} job{'s' if count > 1 else ''} due for {STUCK_AFTER_S} s and nobody takes them",
                "do": f"start a worker: `longtail worker {queue}`",
            }
        )
    return found
