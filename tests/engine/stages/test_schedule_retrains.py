"""Schedules are made, paused, resumed, run and removed; what can't be kept to is refused when it is asked for."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from loop_fixtures import Loop
from sqlalchemy import text

from engine.domain.ontology import OntologyError
from engine.domain.refusals import Conflict, Invalid, NotFound, Refused
from engine.queries import schedules as views
from engine.stages import schedule_retrains as stage
from engine.stages.fire_retrains import fire_retrains
from engine.stages.schedule_retrains import ScheduleRequest
from engine.store.projects import ensure_default
from engine.store.tables.access import AuditEntry, Project
from engine.store.tables.metadata import new_id
from engine.store.tables.work import Schedule, ScheduleFiring


def make(loop: Loop, **asked: Any) -> uuid.UUID:
    values = {"name": "nightly", "line": loop.line().name, "target_heads": ["light"], "cron": "0 3 * * *", **asked}
    with loop.database.unit() as unit:
        made = stage.make_schedule(unit, loop.project_id, ScheduleRequest(**values), "ada")
        unit.commit()
    return made.id


def act(loop: Loop, verb: Any, schedule_id: uuid.UUID) -> Any:
    with loop.database.unit() as unit:
        done = verb(unit, loop.project_id, schedule_id, "ada")
        unit.commit()
    return done


def execute(loop: Loop, sql: str) -> None:
    with loop.database.unit() as unit:
        unit.session.execute(text(sql))
        unit.commit()


def acts(loop: Loop) -> list[str]:
    return [entry.act for entry in loop.all(AuditEntry, AuditEntry.object_kind == "schedule")]


@pytest.mark.parametrize(
    ("asked", "kind", "code"),
    [
        ({"cron": None}, Invalid, "one-rule"),
        ({"new_labels": 5}, Invalid, "one-rule"),
        ({"cron": None, "new_labels": 0}, Invalid, "one-rule"),
        ({"cron": None, "new_labels": 5, "time_zone": "UTC"}, Invalid, "one-rule"),
        ({"label_sources": ["human"]}, Invalid, "one-rule"),
        ({"cron": None, "new_labels": 5, "label_sources": ["auto"]}, Invalid, "unknown-source"),
        ({"cron": "0 25 * * *"}, Invalid, "invalid-cron"),
        ({"time_zone": "Mars/Olympus"}, Invalid, "unknown-time-zone"),
        ({"name": "push:1"}, Invalid, "invalid-name"),
        ({"start": "cold"}, Invalid, "unknown-start"),
        ({"line": "buses"}, NotFound, "no-such-line"),
        ({"target_heads": ["lanes"]}, OntologyError, None),
    ],
)
def test_what_can_not_be_kept_to_is_refused(loop: Loop, asked: dict[str, Any], kind: type, code: str | None) -> None:
    with pytest.raises(kind) as refused:
        make(loop, **asked)
    assert loop.count(Schedule) == 0
    if code:
        assert isinstance(refused.value, Refused)
        assert refused.value.code == code


def test_a_name_is_taken_once(loop: Loop) -> None:
    make(loop)
    with pytest.raises(Conflict, match="there is a schedule 'nightly' already"):
        make(loop, cron=None, new_labels=3)
    assert acts(loop) == ["schedule"]


def test_a_rule_is_in_utc_and_counts_what_people_and_imports_gave_unless_told_otherwise(loop: Loop) -> None:
    make(loop)
    make(loop, name="labels", cron=None, new_labels=3)
    timed, counted = loop.all(Schedule)
    assert (timed.time_zone, timed.label_sources, timed.next_due.hour) == ("UTC", None, 3)
    assert (counted.time_zone, counted.label_sources) == (None, ["human", "import"])


def test_times_of_a_pause_are_not_made_up_for(loop: Loop) -> None:
    schedule = make(loop, cron="*/5 * * * *")
    for _ in range(2):
        act(loop, stage.pause, schedule)
    execute(loop, "UPDATE schedules SET next_due = clock_timestamp() - interval '3 days'")
    assert fire_retrains(loop.database) == 0
    for _ in range(2):
        act(loop, stage.resume, schedule)
    assert fire_retrains(loop.database) == 0
    coming = loop.all(Schedule)[0].next_due - datetime.now(UTC)
    assert timedelta(0) < coming <= timedelta(minutes=5)
    assert acts(loop) == ["schedule", "pause", "resume"], "what changes nothing is no act"


def test_labels_of_a_pause_count(loop: Loop) -> None:
    schedule = make(loop, cron=None, new_labels=4, label_sources=["simulator"])
    act(loop, stage.pause, schedule)
    loop.labelled_drives([1])
    assert fire_retrains(loop.database) == 0
    act(loop, stage.resume, schedule)
    assert fire_retrains(loop.database) == 1


def test_run_now_goes_beside_the_rule_and_one_at_a_time(loop: Loop) -> None:
    schedule = make(loop)
    act(loop, stage.pause, schedule)
    coming = loop.all(Schedule)[0].next_due
    job = act(loop, stage.run_now, schedule)
    (firing,) = loop.all(ScheduleFiring)
    assert (firing.job_id, firing.asked_by) == (job, "ada")
    assert loop.jobs("freeze", "due")[0].payload["target_heads"] == ["light"]
    assert loop.all(Schedule)[0].next_due == coming
    with pytest.raises(Conflict, match="can't run now: labels are being frozen") as refused:
        act(loop, stage.run_now, schedule)
    assert refused.value.code == "line-busy"
    execute(loop, "UPDATE jobs SET state = 'done'")
    act(loop, stage.run_now, schedule)
    assert loop.count(ScheduleFiring) == 2
    with loop.database.read() as session:
        newest = views.firings(session, loop.project_id, 10)
    assert [row["job_state"] for row in newest] == ["due", "done"]


def test_what_it_made_outlives_it(loop: Loop) -> None:
    schedule = make(loop)
    act(loop, stage.run_now, schedule)
    act(loop, stage.remove, schedule)
    assert (loop.count(Schedule), loop.count(ScheduleFiring), len(loop.jobs("freeze", "due"))) == (0, 0, 1)
    assert acts(loop) == ["schedule", "run_now", "unschedule"]
    make(loop)  # its name is free again


@pytest.mark.parametrize("verb", [stage.pause, stage.resume, stage.run_now, stage.remove])
def test_another_projects_schedule_and_the_engines_own_are_not_there(loop: Loop, verb: Any) -> None:
    schedule = make(loop)
    with loop.database.unit() as unit:
        other = Project(id=new_id(), name="other")
        unit.session.add(other)
        unit.session.flush()
        with pytest.raises(NotFound):
            verb(unit, other.id, schedule, "eve")
        own = Schedule(
            id=new_id(), project_id=ensure_default(unit.session).id, name="push:1", job_kind="push",
            job_subject_id=new_id(), job_payload={}, every_s=5, enabled=True, next_due=datetime.now(UTC),
        )  # fmt: skip
        unit.session.add(own)
        unit.session.flush()
        with pytest.raises(NotFound):
            verb(unit, loop.project_id, own.id, "eve")
        assert [row["id"] for row in views.listing(unit.session, loop.project_id, 10)] == [schedule]
        assert views.listing(unit.session, other.id, 10) == []
