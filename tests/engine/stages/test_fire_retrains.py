"""Schedules that retrain fire once for what is due, wait while their line is busy, and count what is new."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from loop_fixtures import Loop
from sqlalchemy import text

from engine.domain.answers import Answer
from engine.domain.ontology import Kind
from engine.jobs import ledger
from engine.queries import schedules as views
from engine.stages import fire_retrains, retrain
from engine.stages.fire_retrains import fire_retrains as tick
from engine.stages.schedule_retrains import ScheduleRequest, make_schedule, pause, run_now
from engine.store.tables.labels import DatasetVersion, Label
from engine.store.tables.models import Run
from engine.store.tables.work import Schedule, ScheduleFiring


def make(loop: Loop, name: str = "nightly", **rule: Any) -> uuid.UUID:
    values: dict[str, Any] = {"target_heads": ["light"], **(rule or {"cron": "0 3 * * *"})}
    with loop.database.unit() as unit:
        made = make_schedule(unit, loop.project_id, ScheduleRequest(name, loop.line().name, **values), "ada")
        unit.commit()
    return made.id


def by_labels(loop: Loop, number: int, sources: Sequence[str] = ("simulator",), name: str = "labels") -> uuid.UUID:
    return make(loop, name, new_labels=number, label_sources=sources)


def execute(loop: Loop, sql: str, **values: Any) -> None:
    with loop.database.unit() as unit:
        unit.session.execute(text(sql), values)
        unit.commit()


def overdue(loop: Loop, ago: str = "1 minute") -> None:
    """As after `ago` in which no worker was there."""
    execute(loop, f"UPDATE schedules SET next_due = clock_timestamp() - interval '{ago}'")


def look_again(loop: Loop) -> int:
    """Tick as if the time to count again had come."""
    execute(loop, "UPDATE schedules SET next_due = clock_timestamp() WHERE new_labels IS NOT NULL")
    return tick(loop.database)


def seen(loop: Loop, schedule_id: uuid.UUID) -> dict[str, Any]:
    with loop.database.read() as session:
        return views.detail(session, loop.project_id, schedule_id)


def freeze(loop: Loop) -> list[uuid.UUID]:
    return retrain.retrain(loop.database, loop.blobs, loop.reader, loop.claim("freeze"))[1]


def end_runs(loop: Loop) -> None:
    execute(loop, "UPDATE runs SET state = 'finished'")


# --- a cron's times ---


def test_a_due_time_makes_the_retraining_that_the_schedule_declares(loop: Loop) -> None:
    loop.labelled_drives([1])
    schedule = make(loop, cron="0 3 * * *", start="scratch", noise_seeds=[7], overrides={"steps": 3})
    assert tick(loop.database) == 0, "it is not due yet"
    overdue(loop)
    due = loop.all(Schedule)[0].next_due
    assert tick(loop.database) == 1
    (job,) = loop.jobs("freeze", "due")
    assert job.payload == {
        "target_heads": ["light"],
        "start": "scratch",
        "seed": None,
        "noise_seeds": [7],
        "overrides": {"steps": 3},
    }
    runs = [loop.run(run_id) for run_id in freeze(loop)]
    assert [(run.purpose, run.target_heads, run.start, run.plan["steps"]) for run in runs] == [
        ("challenger", ["light"], "scratch", 3),
        ("noise", ["light"], "scratch", 3),
    ]
    last = seen(loop, schedule)["last"]
    assert (last["due"], last["job_id"], last["job_state"]) == (due, job.id, "done")
    assert last["dataset"] == {"id": loop.all(DatasetVersion)[0].id, "number": 1}
    assert [run["id"] for run in last["runs"]] == [run.id for run in runs]


def test_the_next_time_is_the_crons_and_not_a_day_after_the_firing(loop: Loop) -> None:
    make(loop, cron="0 3 * * *")
    overdue(loop, "70 hours")
    assert tick(loop.database) == 1
    coming = loop.all(Schedule)[0].next_due
    now = datetime.now(UTC)
    assert (coming.hour, coming.minute, coming.second) == (3, 0, 0)
    assert now < coming <= now + timedelta(days=1)


def test_what_was_missed_while_nobody_was_there_is_made_up_for_once(loop: Loop) -> None:
    make(loop, cron="*/10 * * * *")
    overdue(loop, "3 days")  # 432 due times
    assert [tick(loop.database) for _ in range(3)] == [1, 0, 0]
    execute(loop, "UPDATE jobs SET state = 'done'")
    assert tick(loop.database) == 0, "nor when the line is free again"
    assert loop.count(ScheduleFiring) == 1


def test_many_at_once_fire_it_once(loop: Loop) -> None:
    for number in range(3):
        make(loop, f"s{number}", cron="0 3 * * *")
    loop.labelled_drives([1])
    by_labels(loop, 4, name="l")
    overdue(loop)
    start = threading.Barrier(6)
    fired: list[int] = []

    def ticker() -> None:
        start.wait()
        for _ in range(3):
            fired.append(tick(loop.database))

    threads = [threading.Thread(target=ticker) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # One line is retrained once at a time, whoever asks: the others wait.
    assert sum(fired) == loop.count(ScheduleFiring) == len(loop.jobs("freeze")) == 1
    for left in (2, 1):
        execute(loop, "UPDATE jobs SET state = 'done'")
        execute(loop, "UPDATE schedules SET enabled = false WHERE new_labels IS NOT NULL")
        assert tick(loop.database) == 1, left


def test_it_waits_while_its_line_is_retrained_and_says_for_what(loop: Loop) -> None:
    loop.labelled_drives([1])
    with loop.database.unit() as unit:
        retrain.request(unit, loop.line_id, target_heads=["road"])
        unit.commit()
    schedule = make(loop, cron="*/10 * * * *")
    overdue(loop, "2 hours")
    due = loop.all(Schedule)[0].next_due
    assert tick(loop.database) == 0
    told = seen(loop, schedule)
    assert (told["state"], told["last"]) == ("waiting", None)
    assert "labels are being frozen for a retraining of its line" in told["waits_for"]
    (run,) = freeze(loop)
    assert tick(loop.database) == 0
    assert seen(loop, schedule)["waits_for"] == f"a run of its line is due ({run})"
    execute(loop, "UPDATE runs SET state = 'running'")
    assert tick(loop.database) == 0
    end_runs(loop)
    assert seen(loop, schedule)["state"] == "due"
    assert [tick(loop.database), tick(loop.database)] == [1, 0]
    told = seen(loop, schedule)
    assert (told["state"], told["last"]["due"]) == ("active", due)
    assert told["next_due"] > datetime.now(UTC)


def test_a_paused_one_rests(loop: Loop) -> None:
    make(loop)
    execute(loop, "UPDATE schedules SET enabled = false")
    overdue(loop)
    assert tick(loop.database) == 0


def test_one_that_somebody_is_just_pausing_is_left_to_them(loop: Loop) -> None:
    schedule = make(loop)
    overdue(loop)
    with loop.database.unit() as unit:
        pause(unit, loop.project_id, schedule, "ada")
        unit.session.flush()
        assert tick(loop.database) == 0, "nor does it wait for them"
        unit.commit()
    assert tick(loop.database) == 0
    assert loop.jobs("freeze") == []


def test_one_that_this_machine_can_not_keep_to_is_paused_and_says_why(loop: Loop) -> None:
    broken, whole = make(loop, "broken"), make(loop, "whole")
    execute(loop, "UPDATE schedules SET time_zone = 'Moon/Crater' WHERE id = :id", id=broken)
    overdue(loop)
    execute(loop, "UPDATE schedules SET next_due = next_due - interval '1 hour' WHERE id = :id", id=broken)
    assert tick(loop.database) == 1, "the other one is not held up by it"
    told = seen(loop, broken)
    assert (told["state"], told["last"]["job_id"], told["last"]["job_state"]) == ("paused", None, None)
    assert "there is no time zone 'Moon/Crater'" in told["last"]["skipped"]
    assert seen(loop, whole)["last"]["job_state"] == "due"


def test_a_tick_that_is_undone_leaves_it_due(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    make(loop)
    overdue(loop)

    def dies(*_: object, **__: object) -> None:
        raise RuntimeError("killed here")

    with monkeypatch.context() as patch:
        patch.setattr(fire_retrains, "_record", dies)
        with pytest.raises(RuntimeError, match="killed here"):
            tick(loop.database)
    assert loop.jobs("freeze") == []
    assert tick(loop.database) == 1
    assert loop.count(ScheduleFiring) == len(loop.jobs("freeze")) == 1


# --- new labels ---


def test_it_fires_once_so_many_labels_are_there_that_the_last_version_lacks(loop: Loop) -> None:
    schedule = by_labels(loop, 6)
    loop.labelled_drives([1])  # 4 labels: 2 heads of 2 frames
    assert tick(loop.database) == 0
    told = seen(loop, schedule)
    assert (told["counted"], told["needed"], told["state"]) == (4, 6, "active")
    assert told["next_due"] is None
    clip = loop.add_clip(2)
    loop.label(clip, frames=(0,))
    assert tick(loop.database) == 0, "it counts every half minute"
    assert look_again(loop) == 1
    (firing,) = loop.all(ScheduleFiring)
    assert (firing.new_labels, firing.against_id) == (6, None)
    assert firing.due == loop.all(Label)[5].created_at, "due since the sixth was accepted"
    freeze(loop)
    end_runs(loop)
    assert look_again(loop) == 0
    assert seen(loop, schedule)["counted"] == 0, "they are held by the version now"
    loop.label(clip, frames=(1, 2))
    assert look_again(loop) == 0
    assert seen(loop, schedule)["counted"] == 4
    loop.label(clip, frames=(3, 4, 5))  # ten: past the number, not just at a multiple of it
    assert look_again(loop) == 1
    freeze(loop)
    assert [version.counts["labels"] for version in loop.all(DatasetVersion)] == [6, 16]


def test_a_label_that_was_accepted_while_a_version_was_written_counts_for_the_next(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = by_labels(loop, 2)
    (clip,) = loop.labelled_drives([1])
    assert tick(loop.database) == 1
    lease = loop.claim("freeze")
    put = loop.blobs.put

    def slow(content: Any) -> Any:
        if isinstance(content, bytes) and content.startswith(b"PAR1"):
            loop.label(clip, frames=(2,))  # the labels were read already, and the version is not there yet
        return put(content)

    monkeypatch.setattr(loop.blobs, "put", slow)
    retrain.retrain(loop.database, loop.blobs, loop.reader, lease)
    end_runs(loop)
    (version,) = loop.all(DatasetVersion)
    assert version.counts["labels"] == 4
    assert all(label.created_at < version.created_at for label in loop.all(Label)), "by a clock none would be new"
    assert look_again(loop) == 1
    assert loop.all(ScheduleFiring)[1].new_labels == 2
    freeze(loop)
    assert loop.all(DatasetVersion)[1].counts["labels"] == 6
    assert seen(loop, schedule)["last"]["dataset"]["number"] == 2


def test_only_newly_accepted_labels_that_a_freeze_would_take_are_counted(loop: Loop) -> None:
    schedule = by_labels(loop, 100, sources=("human", "import"))
    loop.labelled_drives([2], "golden")
    kept, elsewhere = loop.add_clip(1), loop.add_clip(3, purposes=["evaluation"])
    loop.label(kept, frames=(0, 1), source="import")
    loop.label(kept, frames=(2,), source="sensor")
    loop.label(kept, frames=(3,), source="auto")
    loop.label(elsewhere, frames=(0,), source="import")
    look_again(loop)
    assert seen(loop, schedule)["counted"] == 4
    loop.freeze()
    look_again(loop)
    assert seen(loop, schedule)["counted"] == 0
    other = Answer(Kind.CHOICE, {"choice": "day"})
    loop.label(kept, frames=(0,), heads=["light"], source="import", answers={"light": other})
    look_again(loop)
    assert seen(loop, schedule)["counted"] == 1, "a revised answer was newly accepted, and what it supersedes was not"
    execute(loop, "UPDATE labels SET superseded_by_id = id WHERE superseded_by_id IS NULL AND source = 'import'")
    look_again(loop)
    assert seen(loop, schedule)["counted"] == 0, "what was withdrawn is no label"


def test_it_waits_with_its_labels_while_the_line_is_retrained(loop: Loop) -> None:
    schedule = by_labels(loop, 2)
    clip = loop.add_clip(1)
    loop.label(clip, frames=(0,))
    loop.start_run(loop.freeze().id)
    loop.label(clip, frames=(1,))
    assert look_again(loop) == 0
    told = seen(loop, schedule)
    assert (told["state"], told["counted"]) == ("waiting", 2)
    assert "a run of its line is due" in told["waits_for"]
    end_runs(loop)
    assert look_again(loop) == 1


def test_labels_that_another_retraining_has_taken_make_no_second_one(loop: Loop) -> None:
    by_labels(loop, 2)
    loop.labelled_drives([1])
    with loop.database.unit() as unit:
        retrain.request(unit, loop.line_id, target_heads=["road"])
        unit.commit()
    assert look_again(loop) == 0
    freeze(loop)
    end_runs(loop)
    assert look_again(loop) == 0
    assert loop.count(ScheduleFiring) == 0


def test_a_version_that_came_while_it_counted_makes_it_count_again(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    by_labels(loop, 2)
    loop.labelled_drives([1])
    counting = fire_retrains.count_new

    def slow(*given: Any) -> int:
        number = counting(*given)
        loop.freeze()
        return number

    monkeypatch.setattr(fire_retrains, "count_new", slow)
    assert look_again(loop) == 0
    monkeypatch.setattr(fire_retrains, "count_new", counting)
    assert look_again(loop) == 0
    assert loop.jobs("freeze") == []


def test_a_freeze_that_died_is_tried_again_only_with_as_many_labels_more(loop: Loop) -> None:
    schedule = by_labels(loop, 4)
    (clip,) = loop.labelled_drives([1])
    assert look_again(loop) == 1
    lease = loop.claim("freeze")
    assert look_again(loop) == 0
    ledger.fail(loop.database, lease, "the picture can't be decoded", retry=False)
    for _ in range(3):
        assert look_again(loop) == 0
    told = seen(loop, schedule)
    assert (told["state"], told["counted"], told["needed"]) == ("active", 4, 8)
    assert (told["last"]["job_state"], told["last"]["job_error"]) == ("dead", "the picture can't be decoded")
    loop.label(clip, frames=(1, 2))
    assert look_again(loop) == 1
    freeze(loop)
    end_runs(loop)
    loop.label(loop.add_clip(4), frames=(0, 1))
    assert look_again(loop) == 1, "once a version holds them, its own number is enough again"


def test_what_was_run_by_hand_counts_as_a_firing(loop: Loop) -> None:
    schedule = by_labels(loop, 4)
    loop.labelled_drives([1])
    with loop.database.unit() as unit:
        run_now(unit, loop.project_id, schedule, "ada")
        unit.commit()
    ledger.fail(loop.database, loop.claim("freeze"), "no", retry=False)
    assert look_again(loop) == 0
    assert loop.count(Run) == 0
