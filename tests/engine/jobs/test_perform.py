"""Doing jobs: leases kept alive meanwhile, failures settled."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

import pytest
from sqlalchemy import select, text

from engine.jobs import ledger
from engine.jobs.ledger import Lease, LeaseLost
from engine.jobs.perform import WorkPostponed, WorkRefused, perform
from engine.jobs.sweep import sweep
from engine.store.tables.work import Job
from engine.store.unit_of_work import Database


@pytest.fixture
def add(database: Database, project_id: uuid.UUID) -> Callable[[], uuid.UUID]:
    def enqueue() -> uuid.UUID:
        with database.unit() as unit:
            job_id = ledger.enqueue(
                unit, kind="accept", project_id=project_id, subject_id=uuid.uuid4(), dedupe_key=str(uuid.uuid4())
            )
            unit.commit()
        assert job_id is not None
        return job_id

    return enqueue


def job(database: Database, job_id: uuid.UUID) -> Job:
    with database.read() as session:
        return session.execute(select(Job).where(Job.id == job_id)).scalar_one()


def test_work_completes_its_job_with_its_record(database: Database, add: Callable[[], uuid.UUID]) -> None:
    job_id = add()

    def work(lease: Lease) -> None:
        with database.unit() as unit:
            unit.session.execute(text("UPDATE projects SET name = 'recorded'"))
            ledger.complete(unit, lease)
            unit.commit()

    assert perform(database, "accept", "w", work) == 1
    assert job(database, job_id).state == "done"
    assert perform(database, "accept", "w", work) == 0


def test_work_with_nothing_to_record_is_completed(database: Database, add: Callable[[], uuid.UUID]) -> None:
    jobs = [add() for _ in range(3)]
    seen = []
    assert perform(database, "accept", "w", lambda lease: seen.append(lease.job_id), limit=5) == 3
    assert seen == jobs
    assert {job(database, job_id).state for job_id in jobs} == {"done"}


@pytest.mark.parametrize(
    ("error", "state", "attempt", "last_error"),
    [
        (RuntimeError("no such frame"), "due", 1, "RuntimeError: no such frame"),
        (WorkRefused("the loss was not finite"), "dead", 1, "the loss was not finite"),
        (WorkPostponed("the label tool is away", 60), "due", 0, "the label tool is away"),
    ],
)
def test_a_failure_is_settled(
    database: Database, add: Callable[[], uuid.UUID], error: Exception, state: str, attempt: int, last_error: str
) -> None:
    job_id = add()

    def work(lease: Lease) -> None:
        raise error

    assert perform(database, "accept", "w", work) == 1
    row = job(database, job_id)
    assert (row.state, row.attempt, row.last_error, row.lease_token) == (state, attempt, last_error, None)


def test_a_batch_goes_on_after_one_of_it_failed(database: Database, add: Callable[[], uuid.UUID]) -> None:
    first, second = add(), add()

    def work(lease: Lease) -> None:
        if lease.job_id == first:
            raise RuntimeError("this one")

    assert perform(database, "accept", "w", work, limit=2) == 2
    assert [job(database, job_id).state for job_id in (first, second)] == ["due", "done"]


def test_long_work_keeps_its_lease(database: Database, add: Callable[[], uuid.UUID]) -> None:
    job_id = add()

    def work(lease: Lease) -> None:
        deadline = time.monotonic() + 3 * lease.lease_s
        while time.monotonic() < deadline:
            time.sleep(0.1)
            assert sweep(database).taken_back == 0

    perform(database, "accept", "w", work, lease_s=1.5)
    row = job(database, job_id)
    assert (row.state, row.attempt) == ("done", 1)


def test_who_lost_the_lease_writes_nothing(database: Database, add: Callable[[], uuid.UUID]) -> None:
    job_id = add()

    def work(lease: Lease) -> None:
        with database.unit() as unit:
            ledger.cancel(unit, job_id, "erased meanwhile")
            unit.commit()
        with database.unit() as unit:
            unit.session.execute(text("UPDATE projects SET name = 'written after all'"))
            ledger.complete(unit, lease)
            unit.commit()

    assert perform(database, "accept", "w", work) == 1
    assert job(database, job_id).state == "cancelled"
    with database.read() as session:
        assert session.execute(text("SELECT name FROM projects")).scalar_one() == "default"


def test_a_released_job_is_due_again_at_once(database: Database, add: Callable[[], uuid.UUID]) -> None:
    job_id = add()
    stop = threading.Event()

    def work(lease: Lease) -> None:
        stop.set()
        for _ in range(100):
            time.sleep(0.1)
            ledger.heartbeat(database, lease)
        raise AssertionError("the lease was never given back")

    assert perform(database, "accept", "w", work, release=stop.is_set) == 1
    row = job(database, job_id)
    assert (row.state, row.attempt, row.last_error) == ("due", 0, "its worker was told to stop")
    (lease,) = ledger.claim(database, "accept", "another")
    ledger.heartbeat(database, lease)
    with pytest.raises(LeaseLost):
        ledger.heartbeat(database, Lease(**{**vars(lease), "token": uuid.uuid4()}))
