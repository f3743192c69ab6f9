"""The job loop: woken, polling, in the ledger's order; and what the watchdog makes of it."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
import redis
from sqlalchemy import text

from engine.jobs import ledger
from engine.jobs.ledger import Lease
from engine.store.database import connect
from engine.store.projects import ensure_default
from engine.store.unit_of_work import Database
from services.local.redis import RedisServer
from services.settings import Settings
from services.workers.app import Watchdog, make_app
from services.workers.job_loop import JobLoop, LoopTiming


class NoHints:
    """Nobody listens."""

    def dispatch(self, job_kind: str, job_id: str, priority: int) -> None:
        """Hints are not looked at here."""


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    engine = connect(database_url)
    yield Database(engine, NoHints())
    engine.dispose()


@pytest.fixture
def add(database: Database) -> Callable[..., uuid.UUID | None]:
    with database.unit() as unit:
        project_id = ensure_default(unit.session).id
        unit.commit()

    def enqueue(kind: str = "collect", priority: int = 0) -> uuid.UUID | None:
        with database.unit() as unit:
            job_id = ledger.enqueue(
                unit,
                kind=kind,
                project_id=project_id,
                subject_id=uuid.uuid4(),
                dedupe_key=str(uuid.uuid4()),
                priority=priority,
            )
            unit.commit()
        return job_id

    return enqueue


@pytest.fixture
def make_loop(database: Database) -> Iterator[Callable[..., JobLoop]]:
    made: list[JobLoop] = []

    def make(handlers: dict[str, Callable[[Lease], object]], **timing: float) -> JobLoop:
        made.append(JobLoop(database, "w", handlers, LoopTiming(**timing)))
        made[-1].start()
        return made[-1]

    yield make
    for loop in made:
        loop.stop()
        assert loop.join(10)


def test_serving_does_every_due_job_of_every_kind(
    add: Callable[..., uuid.UUID | None], make_loop: Callable[..., JobLoop]
) -> None:
    done: list[uuid.UUID] = []
    handlers = {kind: lambda lease: done.append(lease.job_id) for kind in ("collect", "accept")}
    loop = make_loop(handlers, poll_s=3600)
    loop.serve()
    assert done == []
    jobs = {add(kind) for kind in ("collect", "accept", "collect")}
    loop.serve()
    assert set(done) == jobs


def test_without_messages_it_polls(add: Callable[..., uuid.UUID | None], make_loop: Callable[..., JobLoop]) -> None:
    done = threading.Event()
    make_loop({"collect": lambda lease: done.set()}, poll_s=0.2)
    add()
    assert done.wait(10)


def test_it_outlives_a_failure_to_claim(
    database: Database, add: Callable[..., uuid.UUID | None], make_loop: Callable[..., JobLoop]
) -> None:
    done = threading.Event()
    with database.unit() as unit:
        unit.session.execute(text("ALTER TABLE jobs RENAME TO jobs_away"))
        unit.commit()
    loop = make_loop({"collect": lambda lease: done.set()}, poll_s=0.1)
    loop.serve()
    with database.unit() as unit:
        unit.session.execute(text("ALTER TABLE jobs_away RENAME TO jobs"))
        unit.commit()
    add()
    assert done.wait(10)


def test_a_stop_ends_it_after_the_job_under_way(
    add: Callable[..., uuid.UUID | None], make_loop: Callable[..., JobLoop]
) -> None:
    begun, may_end, done = threading.Event(), threading.Event(), []

    def work(lease: Lease) -> None:
        begun.set()
        may_end.wait(10)
        done.append(lease.job_id)

    first = add(priority=1)
    add()
    loop = make_loop({"collect": work})
    assert begun.wait(10)
    loop.stop()
    may_end.set()
    assert loop.join(10)
    loop.serve()  # returns at once
    assert done == [first]


@pytest.fixture
def watched(redis_url: str, make_loop: Callable[..., JobLoop]) -> Iterator[tuple[Watchdog, JobLoop]]:
    app = make_app(Settings(redis_url=redis_url))
    loop = make_loop({}, poll_s=0.1)
    yield Watchdog(app, "labeling", loop, stalled_s=1.0), loop
    app.close()


def test_messages_that_nobody_takes_are_a_stall(watched: tuple[Watchdog, JobLoop], redis_server: RedisServer) -> None:
    watchdog, _ = watched
    with redis.Redis.from_url(redis_server.client_url()) as client:
        client.rpush("labeling", "a message")
        assert watchdog.stalled() is None
        time.sleep(1.2)
        reason = watchdog.stalled()
        assert reason is not None
        assert "messages wait in labeling" in reason
        watchdog.message_came()
        assert watchdog.stalled() is None
        time.sleep(1.2)
        client.flushall()
        assert watchdog.stalled() is None


def test_a_dead_loop_is_a_stall_and_an_idle_one_is_not(watched: tuple[Watchdog, JobLoop]) -> None:
    watchdog, loop = watched
    time.sleep(1.2)
    assert watchdog.stalled() is None
    loop.stop()
    assert loop.join(10)
    time.sleep(1.2)
    reason = watchdog.stalled()
    assert reason is not None
    assert "has not looked for jobs" in reason


def test_a_broker_must_be_set() -> None:
    with pytest.raises(ValueError, match="LONGTAIL_REDIS_URL"):
        make_app(Settings())
