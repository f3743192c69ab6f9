"""The sweep: hints sent again, schedules fired once."""

from __future__ import annotations

import threading
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, text

from engine.jobs import ledger, schedules, sweep
from engine.store.tables.work import Job, Schedule, ScheduleFiring
from engine.store.unit_of_work import Database


def execute(database: Database, sql: str, **values: Any) -> None:
    with database.unit() as unit:
        unit.session.execute(text(sql), values)
        unit.commit()


def add(database: Database, project_id: uuid.UUID, priority: int = 0) -> uuid.UUID | None:
    with database.unit() as unit:
        job_id = ledger.enqueue(
            unit,
            kind="score",
            project_id=project_id,
            subject_id=uuid.uuid4(),
            dedupe_key=str(uuid.uuid4()),
            priority=priority,
        )
        unit.commit()
    return job_id


def schedule(database: Database, project_id: uuid.UUID, every_s: int = 3600, **changes: Any) -> uuid.UUID:
    values: dict[str, Any] = {
        "name": "collect labels",
        "job_kind_name": "collect",
        "subject_id": project_id,
        "payload": {"a": 1},
    }
    with database.unit() as unit:
        made = schedules.ensure(unit.session, project_id=project_id, every_s=every_s, **{**values, **changes})
        unit.commit()
    return made


def finish(database: Database) -> None:
    for lease in ledger.claim(database, "collect", "w", limit=10):
        with database.unit() as unit:
            ledger.complete(unit, lease)
            unit.commit()


def next_due(database: Database) -> datetime:
    with database.read() as session:
        return session.execute(select(Schedule.next_due)).scalar_one()


def count(database: Database, table: type[Any]) -> int:
    with database.read() as session:
        return session.execute(select(func.count()).select_from(table)).scalar_one()


def test_a_hint_is_sent_again_only_when_none_went_out_lately(
    database: Database, project_id: uuid.UUID, hints: Any
) -> None:
    job_id = add(database, project_id)
    hints.hints.clear()
    assert sweep.sweep(database).sent == 0
    execute(database, "UPDATE jobs SET dispatched_at = dispatched_at - interval '1 minute'")
    assert sweep.sweep(database).sent == 1
    assert sweep.sweep(database).sent == 0
    assert hints.hints == [("score", str(job_id), 0)]


def test_a_sweep_sends_a_capped_number_highest_priority_and_oldest_first(
    database: Database, project_id: uuid.UUID, hints: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "RESEND_LIMIT", 3)
    added = [add(database, project_id, priority) for priority in (0, -100, 0, 7, 0)]
    execute(database, "UPDATE jobs SET dispatched_at = NULL")
    hints.hints.clear()
    assert [sweep.sweep(database).sent for _ in range(3)] == [3, 2, 0]
    assert [hint[1] for hint in hints.hints] == [str(added[number]) for number in (3, 0, 2, 4, 1)]


def test_leased_and_finished_jobs_get_no_hint(database: Database, project_id: uuid.UUID) -> None:
    add(database, project_id)
    execute(database, "UPDATE jobs SET dispatched_at = NULL")
    (lease,) = ledger.claim(database, "score", "w")
    assert sweep.sweep(database).sent == 0
    with database.unit() as unit:
        ledger.complete(unit, lease)
        unit.commit()
    assert sweep.sweep(database).sent == 0


def test_a_schedule_makes_its_job_with_its_payload(database: Database, project_id: uuid.UUID, hints: Any) -> None:
    schedule(database, project_id)
    assert sweep.sweep(database).fired == 1
    assert [hint[0] for hint in hints.hints] == ["collect"]
    (lease,) = ledger.claim(database, "collect", "w")
    assert (lease.payload, lease.subject_id) == ({"a": 1}, project_id)
    assert sweep.sweep(database).fired == 0


def test_many_tickers_fire_a_schedule_once(database: Database, project_id: uuid.UUID) -> None:
    for number in range(5):
        schedule(database, project_id, name=f"s{number}")
    start = threading.Barrier(6)
    fired = []

    def ticker() -> None:
        start.wait()
        fired.append(sweep.sweep(database).fired)

    threads = [threading.Thread(target=ticker) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(fired) == 5
    assert count(database, Job) == count(database, ScheduleFiring) == 5


def test_missed_periods_are_made_up_for_once_and_the_grid_is_kept(database: Database, project_id: uuid.UUID) -> None:
    schedule(database, project_id, every_s=60)
    execute(database, "UPDATE schedules SET next_due = clock_timestamp() - interval '630 seconds'")
    before = next_due(database)
    assert sweep.sweep(database).fired == 1
    assert next_due(database) - before == timedelta(seconds=660)
    finish(database)
    assert sweep.sweep(database).fired == 0
    execute(database, "UPDATE schedules SET next_due = next_due - interval '60 seconds'")
    assert sweep.sweep(database).fired == 1
    assert count(database, Job) == 2


def test_no_job_is_made_behind_one_that_is_not_over(database: Database, project_id: uuid.UUID) -> None:
    schedule(database, project_id, every_s=60)
    assert sweep.sweep(database).fired == 1
    execute(database, "UPDATE schedules SET next_due = clock_timestamp()")
    assert sweep.sweep(database).fired == 0  # due
    (lease,) = ledger.claim(database, "collect", "w")
    execute(database, "UPDATE schedules SET next_due = clock_timestamp()")
    assert sweep.sweep(database).fired == 0  # leased
    ledger.fail(database, lease, "dead", retry=False)
    execute(database, "UPDATE schedules SET next_due = clock_timestamp()")
    assert sweep.sweep(database).fired == 1  # a dead one holds nothing up
    assert count(database, Job) == 2


def test_a_schedule_that_is_switched_off_rests(database: Database, project_id: uuid.UUID) -> None:
    first = schedule(database, project_id)
    assert schedule(database, project_id, enabled=False) == first
    assert sweep.sweep(database).fired == 0
    with pytest.raises(ValueError, match="at least 1 s apart"):
        schedule(database, project_id, every_s=0)


@pytest.mark.parametrize(("state", "kept_h"), [("done", 24), ("cancelled", 24 * 7), ("dead", 24 * 7)])
def test_old_firings_and_their_jobs_that_are_over_go(
    database: Database, project_id: uuid.UUID, state: str, kept_h: int
) -> None:
    schedule(database, project_id, every_s=60)
    for older_h, left in ((0, 1), (kept_h - 1, 2), (2, 2)):  # the third firing finds the first one too old
        execute(database, "UPDATE jobs SET state = :state", state=state)
        execute(database, "UPDATE schedule_firings SET due = due - :older * interval '1 hour'", older=older_h)
        execute(database, "UPDATE schedules SET next_due = clock_timestamp()")
        assert sweep.sweep(database).fired == 1
        assert count(database, Job) == count(database, ScheduleFiring) == left
