"""The ledger: claims, leases, retries."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import text

from engine.jobs import ledger
from engine.jobs.sweep import sweep
from engine.store.tables.work import Job
from engine.store.unit_of_work import Database


def add(database: Database, project_id: uuid.UUID, **changes: Any) -> uuid.UUID | None:
    """One job of kind collect, with these changes."""
    values: dict[str, Any] = {"kind": "collect", "subject_id": uuid.uuid4(), "dedupe_key": f"collect:{uuid.uuid4()}"}
    with database.unit() as unit:
        job_id = ledger.enqueue(unit, project_id=project_id, **{**values, **changes})
        unit.commit()
    return job_id


def job(database: Database, job_id: uuid.UUID | None) -> Job:
    with database.read() as session:
        return session.get_one(Job, job_id)


def execute(database: Database, sql: str, **values: Any) -> None:
    with database.unit() as unit:
        unit.session.execute(text(sql), values)
        unit.commit()


def record(database: Database, lease: ledger.Lease) -> None:
    with database.unit() as unit:
        unit.session.execute(text("UPDATE projects SET name = 'written by the slow one'"))
        ledger.complete(unit, lease)
        unit.commit()


def expire(database: Database) -> None:
    execute(database, "UPDATE jobs SET lease_until = clock_timestamp() - interval '1 second' WHERE state = 'leased'")


def make_due(database: Database) -> None:
    execute(database, "UPDATE jobs SET run_after = clock_timestamp() WHERE state = 'due'")


def test_a_job_and_its_hint_exist_only_after_the_commit(database: Database, project_id: uuid.UUID, hints: Any) -> None:
    with database.unit() as unit:
        ledger.enqueue(unit, kind="score", project_id=project_id, subject_id=uuid.uuid4(), dedupe_key="a")
    assert hints.hints == []
    assert ledger.claim(database, "score", "w") == []
    job_id = add(database, project_id, priority=3)
    assert hints.hints == [("collect", str(job_id), 3)]


def test_a_dedupe_key_makes_one_job_for_ever(database: Database, project_id: uuid.UUID, hints: Any) -> None:
    first = add(database, project_id, dedupe_key="once")
    assert add(database, project_id, dedupe_key="once") is None
    (lease,) = ledger.claim(database, "collect", "w")
    with database.unit() as unit:
        ledger.complete(unit, lease)
        unit.commit()
    assert add(database, project_id, dedupe_key="once") is None
    assert [hint[1] for hint in hints.hints] == [str(first)]


def test_an_unknown_kind_is_refused(database: Database, project_id: uuid.UUID) -> None:
    with pytest.raises(ValueError, match="no job kind 'colect'; there are score"):
        add(database, project_id, kind="colect")


def test_a_unit_sends_a_capped_number_of_hints(database: Database, project_id: uuid.UUID, hints: Any) -> None:
    with database.unit() as unit:
        for number in range(ledger.MAX_HINTS + 10):
            ledger.enqueue(unit, kind="score", project_id=project_id, subject_id=uuid.uuid4(), dedupe_key=str(number))
        unit.commit()
    assert len(hints.hints) == ledger.MAX_HINTS
    assert sweep(database).sent == 10


def test_claims_go_by_priority_then_age(database: Database, project_id: uuid.UUID) -> None:
    added = [add(database, project_id, priority=priority) for priority in (0, -100, 5, 0)]
    leases = ledger.claim(database, "collect", "w", limit=10, oldest_first=False)
    assert [lease.job_id for lease in leases] == [added[2], added[0], added[3], added[1]]
    assert {lease.attempt for lease in leases} == {1}


def test_a_claim_by_age_takes_what_is_due_longest(database: Database, project_id: uuid.UUID) -> None:
    backfill = add(database, project_id, priority=-100)
    middle = add(database, project_id, priority=0)
    add(database, project_id, priority=5)
    for expected in (backfill, middle):
        (lease,) = ledger.claim(database, "collect", "w", oldest_first=True)
        assert lease.job_id == expected


def test_backfill_is_done_while_live_work_never_ends_and_delays_it_little(
    database: Database, project_id: uuid.UUID
) -> None:
    backfill = [add(database, project_id, priority=-100) for _ in range(5)]
    claimed = []
    for _ in range(200):
        add(database, project_id)
        add(database, project_id)
        claimed += [lease.job_id for lease in ledger.claim(database, "collect", "w")]
    assert set(backfill) <= set(claimed)  # fails by chance once in about 10^7 runs
    assert len(claimed) == 200


def test_a_job_for_later_is_not_claimed_now(database: Database, project_id: uuid.UUID, hints: Any) -> None:
    with database.read() as session:
        later = session.execute(text("SELECT clock_timestamp() + interval '1 hour'")).scalar_one()
    job_id = add(database, project_id, run_after=later)
    assert hints.hints == []
    assert ledger.claim(database, "collect", "w") == []
    assert ledger.claim(database, "collect", "w", oldest_first=True) == []
    assert ledger.claim(database, "collect", "w", job_id=job_id) == []
    assert sweep(database).sent == 0
    make_due(database)
    assert sweep(database).sent == 1
    assert [lease.job_id for lease in ledger.claim(database, "collect", "w", job_id=job_id)] == [job_id]


def test_eight_claimers_never_get_the_same_job(database: Database, project_id: uuid.UUID) -> None:
    jobs = {add(database, project_id, priority=number % 3) for number in range(240)}
    claimed: list[uuid.UUID] = []
    start = threading.Barrier(8)

    def claimer(name: str) -> None:
        start.wait()
        while leases := ledger.claim(database, "collect", name, limit=3):
            claimed.extend(lease.job_id for lease in leases)

    threads = [threading.Thread(target=claimer, args=(f"w{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(Counter(claimed).values()) == {1}
    # SKIP LOCKED may end a claimer early, never lose a job for the next one.
    assert set(claimed) | {lease.job_id for lease in ledger.claim(database, "collect", "w", limit=240)} == jobs


def test_an_expired_lease_goes_back_and_its_holder_writes_nothing(database: Database, project_id: uuid.UUID) -> None:
    job_id = add(database, project_id)
    (lost,) = ledger.claim(database, "collect", "slow")
    expire(database)
    assert sweep(database).taken_back == 1
    row = job(database, job_id)
    assert (row.state, row.last_error) == ("due", "worker slow fell silent in attempt 1 of 8")
    make_due(database)
    (lease,) = ledger.claim(database, "collect", "fast")
    assert (lease.job_id, lease.attempt) == (job_id, 2)

    with pytest.raises(ledger.LeaseLost):
        ledger.heartbeat(database, lost)
    with pytest.raises(ledger.LeaseLost):
        ledger.fail(database, lost, "too late")
    with pytest.raises(ledger.LeaseLost):
        record(database, lost)
    with database.read() as session:
        assert session.execute(text("SELECT name FROM projects")).scalar_one() == "default"
    with database.unit() as unit:
        ledger.complete(unit, lease)
        unit.commit()
    row = job(database, job_id)
    assert (row.state, row.last_error, row.lease_token) == ("done", None, None)


def test_a_heartbeat_keeps_a_lease(database: Database, project_id: uuid.UUID) -> None:
    add(database, project_id)
    (lease,) = ledger.claim(database, "collect", "w", lease_s=100)
    expire(database)
    ledger.heartbeat(database, lease)
    assert sweep(database).taken_back == 0
    with database.read() as session:
        left = session.execute(
            text("SELECT extract(epoch FROM lease_until - clock_timestamp()) FROM jobs")
        ).scalar_one()
    assert 95 < left <= 100


def test_a_failed_job_waits_longer_each_time_then_is_dead_until_retried(
    database: Database, project_id: uuid.UUID, hints: Any
) -> None:
    job_id = add(database, project_id)
    pauses = []
    for attempt in range(1, 9):
        make_due(database)
        (lease,) = ledger.claim(database, "collect", "w")
        assert lease.attempt == attempt
        ledger.fail(database, lease, f"failure {attempt}")
        with database.read() as session:
            pauses.append(
                session.execute(
                    text("SELECT extract(epoch FROM run_after - clock_timestamp())::float FROM jobs")
                ).scalar_one()
            )
    for attempt, pause in enumerate(pauses[:-1], start=1):
        assert 2 ** (attempt - 1) * 0.5 - 0.5 < pause <= 2 ** (attempt - 1)
    row = job(database, job_id)
    assert (row.state, row.last_error, row.attempt) == ("dead", "failure 8", 8)
    assert row.finished_at is not None
    make_due(database)
    assert ledger.claim(database, "collect", "w") == []

    hints.hints.clear()
    with database.unit() as unit:
        assert ledger.retry_dead(unit, job_id)
        assert not ledger.retry_dead(unit, uuid.uuid4())
        unit.commit()
    assert hints.hints == [("collect", str(job_id), 0)]
    (lease,) = ledger.claim(database, "collect", "w")
    assert lease.attempt == 1


def test_a_job_that_kills_its_worker_ends_as_dead(database: Database, project_id: uuid.UUID) -> None:
    job_id = add(database, project_id, kind="promote")
    for _ in range(6):
        make_due(database)
        assert len(ledger.claim(database, "promote", "w")) == 1
        expire(database)
        swept = sweep(database)
    assert (swept.taken_back, swept.died) == (0, 1)
    row = job(database, job_id)
    assert (row.state, row.last_error) == ("dead", "worker w fell silent in attempt 6 of 6")


def test_without_retry_a_job_is_dead_at_once(database: Database, project_id: uuid.UUID) -> None:
    job_id = add(database, project_id)
    (lease,) = ledger.claim(database, "collect", "w")
    ledger.fail(database, lease, "never", retry=False)
    assert job(database, job_id).state == "dead"


def test_postponing_costs_no_attempt(database: Database, project_id: uuid.UUID) -> None:
    job_id = add(database, project_id)
    (lease,) = ledger.claim(database, "collect", "w")
    ledger.postpone(database, lease, "the label tool is away", 3600)
    assert ledger.claim(database, "collect", "w") == []
    row = job(database, job_id)
    assert (row.state, row.attempt, row.last_error) == ("due", 0, "the label tool is away")


def test_a_cancelled_job_is_lost_to_its_worker(database: Database, project_id: uuid.UUID) -> None:
    job_id = add(database, project_id)
    (lease,) = ledger.claim(database, "collect", "w")
    with database.unit() as unit:
        assert job_id is not None
        assert ledger.cancel(unit, job_id, "its clip was erased")
        assert not ledger.cancel(unit, job_id, "twice")
        unit.commit()
    with pytest.raises(ledger.LeaseLost):
        ledger.heartbeat(database, lease)


def plan(database: Database, sql: str, **values: Any) -> str:
    with database.read() as session:
        session.execute(text(ledger.PLAN_SQL))
        lines = session.execute(text(f"EXPLAIN (COSTS off) {sql}"), values).scalars().all()
    return "\n".join(lines)


@pytest.mark.parametrize("analysed", [True, False])
def test_a_claim_walks_its_index_in_order(database: Database, project_id: uuid.UUID, analysed: bool) -> None:
    execute(
        database,
        """
        INSERT INTO jobs (id, project_id, kind, subject_id, dedupe_key, payload, priority, resource_class, max_attempts)
        SELECT gen_random_uuid(), :project_id, 'score', gen_random_uuid(), 'k' || n, '{}', -100 * (n % 2), 'cpu', 5
        FROM generate_series(1, 20000) AS n
        """,
        project_id=project_id,
    )
    if analysed:
        execute(database, "ANALYZE jobs")
    values = {"kind": "score", "limit": 8, "owner": "w", "lease_s": 30}
    for where, more in (("", {}), ("AND priority = :level", {"level": -100})):
        steps = plan(database, ledger.CLAIM_SQL.format(where=where), **values, **more)
        assert "Index Scan using ix_jobs_claim on jobs" in steps, steps
        assert "Sort" not in steps, steps
        assert "Seq Scan" not in steps, steps
    steps = plan(database, ledger.OLDEST_LEVEL_SQL, kind="score")
    assert "ix_jobs_claim" in steps
    assert "Seq Scan on jobs" not in steps, steps
