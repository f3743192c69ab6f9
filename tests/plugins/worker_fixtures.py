"""Real worker processes, a Redis that may be killed, and a table that shows what jobs did."""

from __future__ import annotations

import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from sqlalchemy import text

from engine.adapters.celery_dispatch import CeleryDispatcher
from engine.jobs import ledger
from engine.jobs.kinds import QUEUE_OF_KIND
from engine.store.database import connect
from engine.store.projects import ensure_default
from engine.store.unit_of_work import Database
from services.local.child import Child
from services.local.folders import make_private
from services.local.redis import RedisServer, redis_program
from services.settings import Settings, system_environment

ROOT = Path(__file__).resolve().parents[2]
EFFECTS_WORKER = Path(__file__).with_name("effects_worker.py")


class OwnRedis:
    """A Redis of one test's own; it is not started yet."""

    def __init__(self, folder: Path) -> None:
        self._server = RedisServer(make_private(folder))
        self._child: Child | None = None

    @property
    def url(self) -> str:
        return self._server.url()

    def start(self) -> None:
        self._child = Child(self._server.command(redis_program()), system_environment(), self._server.sockets / "log")
        self._server.wait_ready()

    def kill(self) -> None:
        if self._child is not None:
            self._child.stop(grace_s=0)

    def client(self) -> redis.Redis:
        """Close it after use."""
        return redis.Redis.from_url(self._server.client_url())


class Effects:
    """The table that the jobs of `effects_worker.py` write to, and the ledger they come from."""

    def __init__(self, database_url: str, redis_url: str) -> None:
        self._dispatcher = CeleryDispatcher(redis_url, QUEUE_OF_KIND)
        self.database = Database(connect(database_url), self._dispatcher)
        with self.database.unit() as unit:
            unit.session.execute(text("CREATE TABLE effects (job_id uuid NOT NULL)"))  # no key: a double would be seen
            self.project_id = ensure_default(unit.session).id
            unit.commit()

    def close(self) -> None:
        self._dispatcher.close()
        self.database.engine.dispose()

    def add(self, seconds: float = 0.0, kind: str = "collect") -> uuid.UUID:
        """One job that takes so long."""
        with self.database.unit() as unit:
            job_id = ledger.enqueue(
                unit,
                kind=kind,
                project_id=self.project_id,
                subject_id=uuid.uuid4(),
                dedupe_key=str(uuid.uuid4()),
                payload={"seconds": seconds},
            )
            unit.commit()
        assert job_id is not None
        return job_id

    def recorded(self) -> Counter[uuid.UUID]:
        """How often each job wrote its row."""
        with self.database.read() as session:
            return Counter(session.execute(text("SELECT job_id FROM effects")).scalars())

    def states(self) -> Counter[str]:
        with self.database.read() as session:
            return Counter(session.execute(text("SELECT state FROM jobs")).scalars())

    def wait(self, reached: Callable[[], bool], timeout_s: float) -> float:
        """Seconds until it is so. Raises TimeoutError with the jobs as they are."""
        start = time.monotonic()
        while not reached():
            if time.monotonic() - start > timeout_s:
                raise TimeoutError(f"not so after {timeout_s:.0f} s; jobs: {dict(self.states())}")
            time.sleep(0.05)
        return time.monotonic() - start

    def wait_done(self, count: int, timeout_s: float) -> float:
        """Seconds until so many jobs are done."""
        return self.wait(lambda: self.states()["done"] >= count, timeout_s)


class Workers:
    """Processes that run `effects_worker.py` with the same settings."""

    def __init__(self, data_dir: Path, **settings: object) -> None:
        self._settings = Settings(data_dir=data_dir, **settings)  # type: ignore[arg-type]
        self._logs = data_dir / "logs"
        self.running: list[Child] = []
        self._started = 0

    def start(self, count: int = 1) -> Child:
        """Start so many more; returns the last."""
        for _ in range(count):
            self._started += 1
            environment = {**self._settings.child_environment(), "PYTHONPATH": str(ROOT)}
            log = self._logs / f"worker-{self._started}.log"
            self.running.append(Child([sys.executable, str(EFFECTS_WORKER)], environment, log, folder=ROOT))
        return self.running[-1]

    def kill(self, worker: Child) -> None:
        """SIGKILL."""
        worker.stop(grace_s=0)
        self.running.remove(worker)

    def kill_all(self) -> None:
        for worker in list(self.running):
            self.kill(worker)


@pytest.fixture
def own_redis(session_folder: Path) -> Iterator[OwnRedis]:
    server = OwnRedis(session_folder / f"r{uuid.uuid4().hex[:6]}")
    yield server
    server.kill()


@pytest.fixture
def effects(database_url: str, own_redis: OwnRedis) -> Iterator[Effects]:
    opened = Effects(database_url, own_redis.url)
    yield opened
    opened.close()


@pytest.fixture
def make_workers(database_url: str, own_redis: OwnRedis, data_dir: Path) -> Iterator[Callable[..., Workers]]:
    """`make_workers(**settings)` gives a set of workers with these settings; all are killed at the end."""
    made: list[Workers] = []

    def make(**settings: object) -> Workers:
        made.append(Workers(data_dir, database_url=database_url, redis_url=own_redis.url, **settings))
        return made[-1]

    yield make
    for each in made:
        each.kill_all()
