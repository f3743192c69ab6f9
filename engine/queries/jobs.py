"""Jobs of the ledger, and how many there are of each kind."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from engine.queries.records import of_project, one, page, record
from engine.store.tables.work import Job


def listing(
    session: Session,
    project_id: uuid.UUID,
    *,
    limit: int,
    after: uuid.UUID | None = None,
    kind: str | None = None,
    state: str | None = None,
    subject_id: uuid.UUID | None = None,
    routine: bool = True,
) -> list[dict[str, Any]]:
    """Jobs, the newest first; without `routine`, those that a schedule made and that went well are left out."""
    query = of_project(Job, project_id)
    if kind is not None:
        query = query.where(Job.kind == kind)
    if state is not None:
        query = query.where(Job.state == state)
    if subject_id is not None:
        query = query.where(Job.subject_id == subject_id)
    if not routine:
        query = query.where(~(Job.dedupe_key.startswith("schedule:") & (Job.state == "done")))
    return [record(row[0]) for row in page(session, query, Job.id, limit, after, newest_first=True)]


def detail(session: Session, project_id: uuid.UUID, job_id: uuid.UUID) -> dict[str, Any]:
    """One job. Raises NotFound."""
    return record(one(session, of_project(Job, project_id).where(Job.id == job_id), "job", job_id, "jobs")[0])


def counts(session: Session) -> list[tuple[str, str, int]]:
    """(kind, state, how many) over all projects."""
    rows = session.execute(select(Job.kind, Job.state, func.count()).group_by(Job.kind, Job.state))
    return [(kind, state, count) for kind, state, count in rows]
