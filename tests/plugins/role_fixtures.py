"""The worker processes of production, on a test's own database and Redis, and the line whose jobs they do."""

from __future__ import annotations

import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loop_fixtures import Loop
from sqlalchemy import text

from engine.adapters.celery_dispatch import CeleryDispatcher
from engine.jobs.kinds import QUEUE_OF_KIND
from engine.store.unit_of_work import Database
from services.local.child import Child
from services.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


class Roles:
    """`python -m services.cli worker QUEUE`, any number of them."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._settings, self._database = settings, database
        self.running: list[Child] = []
        self._started = 0

    def start(self, queue: str) -> Child:
        self._started += 1
        log = self._settings.data_dir / "logs" / f"{queue}-{self._started}.log"
        command = [sys.executable, "-m", "services.cli", "worker", queue]
        self.running.append(Child(command, self._settings.child_environment(), log, folder=ROOT))
        return self.running[-1]

    def kill(self, worker: Child) -> None:
        """SIGKILL."""
        worker.stop(grace_s=0)
        self.running.remove(worker)

    def kill_all(self) -> None:
        for worker in list(self.running):
            self.kill(worker)

    def wait(self, reached: Callable[[], object], timeout_s: float, every_s: float = 0.05) -> float:
        """Seconds until it is so. Raises TimeoutError with the jobs as they are and the workers' last words."""
        start = time.monotonic()
        while not reached():
            if time.monotonic() - start > timeout_s:
                words = "\n\n".join(str(worker.last_lines(15)) for worker in self.running)
                raise TimeoutError(f"not so after {timeout_s:.0f} s; jobs: {self.jobs()}\n{words}")
            time.sleep(every_s)
        return time.monotonic() - start

    def jobs(self) -> list[tuple[str, str, int, str | None]]:
        """How many jobs of each kind are in each state, and an error of theirs."""
        query = "SELECT kind, state, count(*), max(last_error) FROM jobs GROUP BY kind, state ORDER BY kind, state"
        with self._database.read() as session:
            return [(kind, state, count, error) for kind, state, count, error in session.execute(text(query))]

    def open(self, *kinds: str) -> int:
        """How many jobs of these kinds are not over yet. Raises AssertionError when one died."""
        counts: Counter[str] = Counter()
        for kind, state, count, error in self.jobs():
            assert state != "dead", f"a {kind} job died: {error}"
            if kind in kinds and state in ("due", "leased"):
                counts[kind] += count
        return counts.total()

    def at_work(self, kind: str) -> tuple[Child, uuid.UUID] | None:
        """A running worker that is doing a job of this kind, and the job."""
        with self._database.read() as session:
            query = "SELECT lease_owner, id FROM jobs WHERE state = 'leased' AND kind = :kind"
            owners = {int(o.rpartition(":")[2]): j for o, j in session.execute(text(query), {"kind": kind})}
        for worker in self.running:
            if worker.pid in owners:
                return worker, owners[worker.pid]
        return None


@pytest.fixture
def make_roles(database_url: str, redis_url: str, data_dir: Path) -> Iterator[Callable[..., Roles]]:
    """`make_roles(loop, **settings)` gives a line's workers; what the test makes due is told to them through Redis."""
    made: list[tuple[Roles, CeleryDispatcher]] = []

    def make(loop: Loop, **settings: Any) -> Roles:
        given = Settings(
            data_dir=data_dir,
            database_url=database_url,
            redis_url=redis_url,
            tick_seconds=0.5,
            poll_seconds=1.0,
            lease_seconds=3.0,
            # Nothing listens there: the label tool is down for the whole of the test.
            label_studio_url="http://127.0.0.1:9",
            label_studio_token="unused",
            signing_secret="a secret of the tests",
            **settings,
        )
        dispatcher = CeleryDispatcher(redis_url, QUEUE_OF_KIND)
        loop.database = Database(loop.database.engine, dispatcher)
        made.append((Roles(given, loop.database), dispatcher))
        return made[-1][0]

    yield make
    for roles, dispatcher in made:
        roles.kill_all()
        dispatcher.close()


@pytest.fixture
def roles(loop: Loop, make_roles: Callable[..., Roles]) -> Roles:
    """The workers of the test's own line."""
    return make_roles(loop)
