"""The sweep: what keeps work moving when workers die and messages are lost. Safe to run anywhere, at once, any time."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text

from engine.jobs import schedules
from engine.jobs.kinds import JOB_KINDS
from engine.jobs.ledger import PLAN_SQL, RETRY_BASE_S, RETRY_CAP_S
from engine.store.unit_of_work import Database, JobHint

RESEND_S = 20.0
"""A due job's hint is sent again when none went out for this long."""
RESEND_LIMIT = 32
"""Hints that a sweep sends again for each kind: enough to wake every worker, and each drains its kind."""
EXPIRED_LIMIT = 500

_TAKE_BACK_SQL = """
WITH expired AS (
    SELECT id, attempt >= max_attempts AS spent FROM jobs
    WHERE state = 'leased' AND lease_until < statement_timestamp()
    ORDER BY lease_until
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
UPDATE jobs
SET state = CASE WHEN spent THEN 'dead' ELSE 'due' END,
    finished_at = CASE WHEN spent THEN clock_timestamp() END,
    run_after = CASE
        WHEN spent THEN run_after
        ELSE clock_timestamp()
            + make_interval(secs => least(:cap_s, :base_s * 2.0 ^ (attempt - 1)) * (0.5 + 0.5 * random()))
    END,
    last_error = 'worker ' || lease_owner || ' fell silent in attempt ' || attempt || ' of ' || max_attempts,
    dispatched_at = NULL, lease_owner = NULL, lease_until = NULL, lease_token = NULL
FROM expired
WHERE jobs.id = expired.id
RETURNING jobs.state
"""

# For one kind, so that it walks ix_jobs_claim from its head, and the head is what a worker will take first.
_RESEND_SQL = """
WITH unsent AS (
    SELECT id FROM jobs
    WHERE kind = :kind AND state = 'due' AND run_after <= statement_timestamp()
      AND (dispatched_at IS NULL OR dispatched_at < statement_timestamp() - make_interval(secs => :resend_s))
    ORDER BY priority DESC, run_after, id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
)
UPDATE jobs SET dispatched_at = clock_timestamp() FROM unsent WHERE jobs.id = unsent.id
RETURNING jobs.id, jobs.priority, jobs.run_after
"""


@dataclass(frozen=True)
class Swept:
    """What one sweep did, in jobs."""

    taken_back: int
    died: int
    fired: int
    sent: int


def sweep(database: Database, resend_s: float = RESEND_S) -> Swept:
    """Take back expired leases, fire due schedules, send again the hints of due jobs that none was sent for lately."""
    with database.unit() as unit:
        states = unit.session.execute(
            text(_TAKE_BACK_SQL), {"limit": EXPIRED_LIMIT, "base_s": RETRY_BASE_S, "cap_s": RETRY_CAP_S}
        ).scalars()
        taken = list(states)
        unit.commit()
    with database.unit() as unit:
        fired = schedules.fire_due(unit)
        unit.commit()
    sent = 0
    for kind in JOB_KINDS:
        with database.unit() as unit:
            values = {"kind": kind, "resend_s": resend_s, "limit": RESEND_LIMIT}
            unit.session.execute(text(PLAN_SQL))
            rows = unit.session.execute(text(_RESEND_SQL), values).all()
            for row in sorted(rows, key=lambda row: (-row.priority, row.run_after, row.id)):
                unit.hints.append(JobHint(kind, str(row.id), row.priority))
            sent += len(rows)
            unit.commit()
    return Swept(taken_back=taken.count("due"), died=taken.count("dead"), fired=fired, sent=sent)
