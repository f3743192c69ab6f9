"""The ticker: one of many ticks, and another takes over."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text

from engine.jobs import schedules
from engine.store.database import connect
from engine.store.projects import ensure_default
from engine.store.unit_of_work import Database
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
