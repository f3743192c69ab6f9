"""The ledger of jobs: the row is the job, a message about it is only a hint.

A job is claimed under a lease (a token, and a time on the database's clock). Whoever holds the token may renew the
lease, and may finish the job inside the transaction that records its work; whoever lost it gets LeaseLost and so
writes nothing. An attempt is counted when a job is claimed, so that one which kills its worker ends as dead too.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, func, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.jobs.kinds import job_kind
from engine.store.tables.metadata import new_id
from engine.store.tables.work import Job
from engine.store.unit_of_work import Database, JobHint, UnitOfWork

MAX_HINTS = 64
"""Hints that one unit of work sends: a worker that got one drains its kind, so more would only cost the caller time."""

AGED_CLAIM_SHARE = 1 / 8
"""Share of claims that take the job which is due longest, whatever its priority.

The rest go by priority, so backfill delays live work by at most one claim in eight, and a level that is never
emptied above it can't starve it.
"""

RETRY_BASE_S = 1.0
RETRY_CAP_S = 600.0
_MAX_ERROR = 2000

# The ORDER BY is ix_jobs_claim to the letter. `statement_timestamp()` is stable, so that the index can compare with it;
# the claim is a transaction of its own, so it is the database's time now.
CLAIM_SQL = """
WITH chosen AS (
    SELECT id FROM jobs
    WHERE kind = :kind AND state = 'due' AND run_after <= statement_timestamp() {where}
    ORDER BY priority DESC, run_after, id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
UPDATE jobs
SET state = 'leased', attempt = attempt + 1, lease_owner = :owner, lease_token = gen_random_uuid(),
    lease_until = clock_timestamp() + make_interval(secs => :lease_s),
    started_at = clock_timestamp(), finished_at = NULL
FROM chosen
WHERE jobs.id = chosen.id
RETURNING jobs.id, project_id, subject_id, payload, priority, run_after, attempt, max_attempts, lease_token
"""

# A ledger fills and empties faster than its statistics are renewed, and on stale ones the planner sorts every due job
# for a claim (40 ms with a hundred thousand of them, instead of 1): in this transaction it may only walk the index.
PLAN_SQL = """
SELECT set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_seqscan', 'off', true)
"""

# The priority of the job that is due longest: walks the few levels that have due jobs and looks at the head of each,
# all on ix_jobs_claim, so it costs the same with a hundred thousand jobs waiting.
OLDEST_LEVEL_SQL = """
WITH RECURSIVE levels AS (
    (SELECT priority FROM jobs WHERE kind = :kind AND state = 'due' ORDER BY priority DESC LIMIT 1)
    UNION ALL
    SELECT (
        SELECT jobs.priority FROM jobs
        WHERE jobs.kind = :kind AND jobs.state = 'due' AND jobs.priority < levels.priority
        ORDER BY jobs.priority DESC LIMIT 1
    ) FROM levels WHERE levels.priority IS NOT NULL
)
SELECT levels.priority
FROM levels CROSS JOIN LATERAL (
    SELECT jobs.run_after, jobs.id FROM jobs
    WHERE jobs.kind = :kind AND jobs.state = 'due' AND jobs.priority = levels.priority
      AND jobs.run_after <= statement_timestamp()
    ORDER BY jobs.run_after, jobs.id LIMIT 1
) AS head
ORDER BY head.run_after, head.id
LIMIT 1
"""


class LeaseLost(RuntimeError):
    """The job is no longer ours: its lease ran out and was taken back, or it was cancelled. Write nothing."""


@dataclass(frozen=True)
class Lease:
    """A claimed job and the token that proves it is ours. `attempt` counts from 1."""

    job_id: uuid.UUID
    kind: str
    project_id: uuid.UUID
    subject_id: uuid.UUID
    payload: Mapping[str, Any]
    attempt: int
    max_attempts: int
    token: uuid.UUID
    lease_s: float


def enqueue(
    unit: UnitOfWork,
    *,
    kind: str,
    project_id: uuid.UUID,
    subject_id: uuid.UUID,
    dedupe_key: str,
    payload: Mapping[str, Any] | None = None,
    priority: int = 0,
    run_after: datetime | None = None,
) -> uuid.UUID | None:
    """Make a job due, in the transaction that made it necessary; a higher priority goes first.

    Returns the job's id, or None when the ledger has (or ever had) a job with this dedupe key.
    """
    described = job_kind(kind)
    hint_now = run_after is None and len(unit.hints) < MAX_HINTS
    values: dict[str, Any] = {
        "id": new_id(),
        "project_id": project_id,
        "kind": kind,
        "subject_id": subject_id,
        "dedupe_key": dedupe_key,
        "payload": dict(payload or {}),
        "priority": priority,
        "resource_class": described.resource_class,
        "max_attempts": described.max_attempts,
    }
    if run_after is not None:
        values["run_after"] = run_after
    if hint_now:
        values["dispatched_at"] = func.clock_timestamp()
    statement = insert(Job).values(**values).on_conflict_do_nothing(index_elements=["dedupe_key"]).returning(Job.id)
    job_id = unit.session.execute(statement).scalar_one_or_none()
    if job_id is not None and hint_now:
        unit.hints.append(JobHint(kind, str(job_id), priority))
    return job_id


def claim(
    database: Database,
    kind: str,
    owner: str,
    limit: int = 1,
    job_id: uuid.UUID | None = None,
    *,
    lease_s: float | None = None,
    oldest_first: bool | None = None,
) -> list[Lease]:
    """Take up to `limit` due jobs of a kind, highest priority first and then longest due; no two claims take the same.

    With `job_id`, that job alone, if it is due. `lease_s` replaces the kind's own. `oldest_first` says whether this is
    one of the claims that look at age alone; by default AGED_CLAIM_SHARE of them are.
    """
    seconds = lease_s or job_kind(kind).lease_s
    values: dict[str, Any] = {"kind": kind, "owner": owner, "limit": limit, "lease_s": seconds}
    by_age = random.random() < AGED_CLAIM_SHARE if oldest_first is None else oldest_first
    rows: Sequence[Row[Any]] = []
    with database.unit() as unit:
        unit.session.execute(text(PLAN_SQL))
        if job_id is not None:
            rows = _claim(unit.session, "AND id = :job_id", {**values, "job_id": job_id})
        elif by_age:
            level = unit.session.execute(text(OLDEST_LEVEL_SQL), {"kind": kind}).scalar_one_or_none()
            if level is not None:
                rows = _claim(unit.session, "AND priority = :level", {**values, "level": level})
        if job_id is None and not rows:
            rows = _claim(unit.session, "", values)
        unit.commit()
    rows = sorted(rows, key=lambda row: (-row.priority, row.run_after, row.id))
    return [
        Lease(
            job_id=row.id,
            kind=kind,
            project_id=row.project_id,
            subject_id=row.subject_id,
            payload=row.payload,
            attempt=row.attempt,
            max_attempts=row.max_attempts,
            token=row.lease_token,
            lease_s=seconds,
        )
        for row in rows
    ]


def heartbeat(database: Database, lease: Lease) -> None:
    """Renew the lease. Raises LeaseLost."""
    with database.unit() as unit:
        guard(unit, lease)
        unit.commit()


def guard(unit: UnitOfWork, lease: Lease) -> None:
    """Renew the lease inside a unit that records work in progress, so that only its holder can. Raises LeaseLost."""
    until = func.clock_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, lease.lease_s)
    _update_held(unit.session, lease, lease_until=until)


def complete(unit: UnitOfWork, lease: Lease) -> None:
    """Finish the job inside the unit that records its work: the guard. Raises LeaseLost, and then don't commit."""
    _update_held(unit.session, lease, state="done", finished_at=func.clock_timestamp(), last_error=None, **_NO_LEASE)


def fail(database: Database, lease: Lease, error: str, retry: bool = True) -> None:
    """Give the job back after a failure: due again after a growing, jittered pause, or dead after its last attempt.

    `error` is kept and shown; without `retry` the job is dead at once. Raises LeaseLost.
    """
    again = retry and lease.attempt < lease.max_attempts
    with database.unit() as unit:
        if again:
            after = func.clock_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, retry_delay_s(lease.attempt))
            _update_held(unit.session, lease, state="due", run_after=after, last_error=error[:_MAX_ERROR], **_UNSENT)
        else:
            at = func.clock_timestamp()
            _update_held(unit.session, lease, state="dead", finished_at=at, last_error=error[:_MAX_ERROR], **_NO_LEASE)
        unit.commit()


def postpone(database: Database, lease: Lease, reason: str, delay_s: float) -> None:
    """Give the job back unharmed, due again in `delay_s`: what it needs isn't there now. The attempt is not counted.

    Raises LeaseLost.
    """
    after = func.clock_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, delay_s)
    with database.unit() as unit:
        _update_held(
            unit.session,
            lease,
            state="due",
            attempt=Job.attempt - 1,
            run_after=after,
            last_error=reason[:_MAX_ERROR],
            **_UNSENT,
        )
        unit.commit()


def retry_dead(unit: UnitOfWork, job_id: uuid.UUID) -> bool:
    """Make a dead job due again with all of its attempts; False when there is no such dead job."""
    statement = (
        update(Job)
        .where(Job.id == job_id, Job.state == "dead")
        .values(
            state="due",
            attempt=0,
            run_after=func.clock_timestamp(),
            dispatched_at=func.clock_timestamp(),
            finished_at=None,
        )
        .returning(Job.kind, Job.priority)
    )
    row = unit.session.execute(statement).one_or_none()
    if row is not None:
        unit.hints.append(JobHint(row.kind, str(job_id), row.priority))
    return row is not None


def cancel(unit: UnitOfWork, job_id: uuid.UUID, reason: str) -> bool:
    """Cancel a job that is due or being worked on, whose worker then loses its lease; False when it is over already."""
    statement = (
        update(Job)
        .where(Job.id == job_id, Job.state.in_(["due", "leased"]))
        .values(state="cancelled", finished_at=func.clock_timestamp(), last_error=reason[:_MAX_ERROR], **_NO_LEASE)
        .returning(Job.id)
    )
    return unit.session.execute(statement).one_or_none() is not None


def retry_delay_s(attempt: int) -> float:
    """Pause after a job's `attempt`-th failure: doubles each time up to RETRY_CAP_S; half of it is jitter."""
    return min(RETRY_CAP_S, RETRY_BASE_S * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)


_NO_LEASE: dict[str, Any] = {"lease_owner": None, "lease_until": None, "lease_token": None}
_UNSENT: dict[str, Any] = {**_NO_LEASE, "dispatched_at": None}


def _claim(session: Session, where: str, values: Mapping[str, Any]) -> Sequence[Row[Any]]:
    return session.execute(text(CLAIM_SQL.format(where=where)), values).all()


def _update_held(session: Session, lease: Lease, **values: Any) -> None:
    statement = (
        update(Job)
        .where(Job.id == lease.job_id, Job.state == "leased", Job.lease_token == lease.token)
        .values(**values)
        .execution_options(synchronize_session=False)
        .returning(Job.id)
    )
    if session.execute(statement).one_or_none() is None:
        raise LeaseLost(f"{lease.kind} job {lease.job_id} is no longer ours (attempt {lease.attempt})")
