"""The ticker: one of many ticks, and another takes over."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text

from engine.jobs import schedules
from engine.stages.register import make_line, register_ontology
from engine.stages.schedule_retrains import ScheduleRequest, make_schedule
from engine.store.database import connect
from engine.store.projects import ensure_default
from engine.store.unit_of_work import Database
from services.settings import system_environment
from services.workers.ticker import Ticker


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
def make_ticker(database: Database) -> Iterator[Callable[..., Ticker]]:
    made: list[Ticker] = []

    def make(**values: object) -> Ticker:
        made.append(Ticker(database, **{"every_s": 0.05, "silent_s": 60, **values}))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for ticker in made:
        ticker.stop()
        ticker._let_go()
        if ticker.ident is not None:
            ticker.join(10)


def fired(database: Database) -> int:
    with database.read() as session:
        return session.execute(text("SELECT count(*) FROM schedule_firings")).scalar_one()


def test_one_of_many_leads_and_the_next_takes_over(make_ticker: Callable[..., Ticker]) -> None:
    first, second = make_ticker(), make_ticker()
    assert first.tick() is not None
    assert second.tick() is None
    assert first.tick() is not None
    first._let_go()
    assert second.tick() is not None
    assert (first.tick(), first.leads, second.leads) == (None, False, True)


def test_one_that_hangs_loses_the_lead(make_ticker: Callable[..., Ticker]) -> None:
    hanging, next_one = make_ticker(silent_s=0.5), make_ticker()
    assert hanging.tick() is not None
    deadline = time.monotonic() + 10
    while next_one.tick() is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert hanging.tick() is None  # finds its session gone, lives on
    assert not hanging.leads


def test_tickers_in_threads_fire_a_schedule_once(database: Database, make_ticker: Callable[..., Ticker]) -> None:
    with database.unit() as unit:
        project_id = ensure_default(unit.session).id
        schedules.ensure(
            unit.session,
            project_id=project_id,
            name="collect labels",
            job_kind_name="collect",
            subject_id=uuid.uuid4(),
            every_s=3600,
        )
        unit.commit()
    ticks = []
    for _ in range(3):
        make_ticker(on_tick=lambda: ticks.append(1)).start()
    deadline = time.monotonic() + 20
    while len(ticks) < 15 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(ticks) >= 15
    assert fired(database) == 1


def test_a_database_that_is_away_ends_no_ticker() -> None:
    engine = connect("postgresql+psycopg://nobody@/nothing?host=/nonexistent")
    ticks = []
    ticker = Ticker(Database(engine, NoHints()), 0.05, on_tick=lambda: ticks.append(1))
    assert ticker.tick() is None
    assert ticks == [1]
    engine.dispose()


RETRAIN_TICKERS = """
import sys, time
from engine.store.database import connect
from engine.store.unit_of_work import Database
from services.wiring import Undispatched
from services.workers.ticker import Ticker
ticker = Ticker(Database(connect(sys.argv[1]), Undispatched()), 0.05, silent_s=60)
ticker.start()
print("ticks", flush=True)
time.sleep(60)
"""


def test_two_processes_make_up_once_for_what_was_due_while_no_worker_ran(database: Database, database_url: str) -> None:
    def count(table: str) -> int:
        with database.read() as session:
            return session.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()

    def execute(sql: str) -> None:
        with database.unit() as unit:
            unit.session.execute(text(sql))
            unit.commit()

    def until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    with database.unit() as unit:
        project_id = ensure_default(unit.session).id
        document = {"name": "roads", "version": 1, "heads": [{"name": "light", "kind": "choice", "classes": ["on"]}]}
        register_ontology(unit, project_id, document)
        make_line(unit, project_id, "roads", "roads", 1, {}, "test")
        request = ScheduleRequest("often", "roads", ["light"], cron="*/10 * * * *")
        make_schedule(unit, project_id, request, "test")
        unit.commit()
    execute("UPDATE schedules SET next_due = clock_timestamp() - interval '2 days'")
    command = [sys.executable, "-c", RETRAIN_TICKERS, database_url]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, env=system_environment()) for _ in range(2)]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"ticks\n"
        until(lambda: count("schedule_firings") > 0)
        time.sleep(1.0)  # some twenty ticks of each
        assert (count("schedule_firings"), count("jobs")) == (1, 1)
        # The line is still being retrained when the next time comes: it waits, over the death of the one that led.
        execute("UPDATE schedules SET next_due = clock_timestamp() - interval '25 minutes'")
        time.sleep(0.5)
        workers[0].kill()
        workers[0].wait()
        assert count("jobs") == 1
        execute("UPDATE jobs SET state = 'done'")
        until(lambda: count("schedule_firings") == 2)
        time.sleep(1.0)
        assert (count("schedule_firings"), count("jobs")) == (2, 2)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            assert worker.stdout is not None
            worker.stdout.close()
