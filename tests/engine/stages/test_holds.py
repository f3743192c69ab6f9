"""What is under a legal hold is neither erased nor expires, until the hold is lifted; every act is in the audit."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from erasure_fixtures import Eraser
from loop_fixtures import Loop
from sqlalchemy import text

from engine.domain.erasure import Target
from engine.domain.refusals import Conflict, Gone, Invalid, NotFound
from engine.stages.holds import lift_hold, place_hold
from engine.stages.retention import expire, set_retention
from engine.store.tables.access import AuditEntry
from engine.store.tables.privacy import Erasure, LegalHold
from engine.store.tables.recordings import Clip


def hold(loop: Loop, why: str = "case 12", **target: Any) -> uuid.UUID:
    with loop.database.unit() as unit:
        placed = place_hold(unit, loop.project_id, Target(**target), why, "counsel")
        unit.commit()
    return placed.id


def lift(loop: Loop, hold_id: uuid.UUID) -> None:
    with loop.database.unit() as unit:
        lift_hold(unit, loop.project_id, hold_id, "settled", "counsel")
        unit.commit()


def keep(loop: Loop, days: int | None) -> None:
    with loop.database.unit() as unit:
        set_retention(unit, loop.project_id, days, "tester")
        unit.commit()


def sweep(loop: Loop) -> uuid.UUID | None:
    loop.enqueue("expire", loop.project_id)
    return expire(loop.database, loop.claim("expire"))


def age(loop: Loop, clip: uuid.UUID, days: int) -> None:
    with loop.database.unit() as unit:
        aged = "UPDATE clips SET received_at = received_at - make_interval(days => :d) WHERE id = :c"
        unit.session.execute(text(aged), {"d": days, "c": clip})
        unit.commit()


@pytest.mark.parametrize("held", ["vehicle", "drive", "clip"])
@pytest.mark.parametrize("erased", ["vehicle", "drive", "clip"])
def test_nothing_under_a_hold_is_erased(loop: Loop, eraser: Eraser, held: str, erased: str) -> None:
    clip = loop.add_clip(7001, vehicle="one")
    targets: dict[str, dict[str, Any]] = {
        "vehicle": {"vehicle": "one"},
        "drive": {"vehicle": "one", "drive": "pool-7001"},
        "clip": {"clip": clip},
    }
    first, second = hold(loop, **targets[held]), hold(loop, "case 13", **targets[held])
    with pytest.raises(Conflict, match="placed by counsel: case 12 and 1 more") as refused:
        eraser.ask(**targets[erased])
    assert str(first) in refused.value.hint
    lift(loop, first)
    with pytest.raises(Conflict, match="case 13"):
        eraser.ask(**targets[erased])
    lift(loop, second)
    assert eraser.erase(**targets[erased]).state == "done"
    assert loop.count(Clip) == 0


def test_a_hold_on_something_else_is_in_nobodys_way(loop: Loop, eraser: Eraser) -> None:
    mine, other = loop.add_clip(7001, vehicle="one"), loop.add_clip(7002, vehicle="one")
    hold(loop, clip=other)
    assert eraser.erase(clip=mine).state == "done"
    with pytest.raises(Conflict, match="hold on the clip"):
        eraser.ask(vehicle="one")


def test_a_hold_that_comes_before_the_erasure_begins_stops_it(loop: Loop, eraser: Eraser) -> None:
    clip = loop.add_clip(7001, vehicle="one")
    erasure = eraser.ask(vehicle="one")
    standing = hold(loop, clip=clip)
    assert eraser.work() == "refused"
    told = eraser.erasure(erasure)
    assert told.refusal is not None
    assert "case 12" in told.refusal
    assert loop.clip(clip).state == "received"
    lift(loop, standing)
    again = eraser.ask(vehicle="one")
    assert again != erasure
    assert eraser.work() == "done"


def test_a_hold_that_comes_after_it_is_told_so(loop: Loop, eraser: Eraser) -> None:
    clip = loop.add_clip(7001, vehicle="one")
    eraser.ask(vehicle="one")
    eraser.die_at("erase.after_mark")
    targets: list[dict[str, Any]] = [{"vehicle": "one"}, {"drive": "pool-7001"}, {"clip": clip}]
    for target in targets:
        with pytest.raises(Gone, match="being erased"):
            hold(loop, **target)
    assert eraser.work() == "done"
    with pytest.raises(Gone):
        hold(loop, vehicle="one")
    assert loop.count(LegalHold) == 0


def test_holds_are_on_record(loop: Loop, eraser: Eraser) -> None:
    clip = loop.add_clip(7001)
    placed = hold(loop, clip=clip)
    lift(loop, placed)
    with pytest.raises(Conflict, match="was lifted"):
        lift(loop, placed)
    with pytest.raises(NotFound, match="no legal hold"):
        lift(loop, uuid.uuid4())
    eraser.erase(clip=clip)
    entries = loop.all(AuditEntry, AuditEntry.object_id == str(placed))
    assert [(entry.act, entry.actor, entry.details) for entry in entries] == [
        ("hold", "counsel", {"on": "clip", "why": "case 12"}),
        ("lift hold", "counsel", {"why": "settled"}),
    ]
    (row,) = loop.all(LegalHold)
    assert (row.scope_id, row.reason, row.lift_reason) == (None, "case 12", "settled")


# --- retention ------------------------------------------------------------------------------------------------------


def test_what_is_too_old_is_erased_and_the_rest_stays(loop: Loop, eraser: Eraser) -> None:
    old, young = loop.add_clip(7001), loop.add_clip(7002)
    age(loop, old, 31)
    assert sweep(loop) is None
    keep(loop, 30)
    erasure = sweep(loop)
    assert erasure is not None
    assert sweep(loop) is None  # one at a time
    assert eraser.work() == "done"
    assert [clip.id for clip in loop.all(Clip)] == [young]
    told = eraser.erasure(erasure)
    assert (told.scope_kind, told.requested_by) == ("expired", "retention")
    assert eraser.removed(erasure)["clips"] == 1
    assert loop.jobs("expire", "due")  # there may be more than one erasure takes
    with pytest.raises(Gone):
        loop.add_clip(7001)


def test_a_clips_own_time_ends_it_sooner_and_never_later(loop: Loop, eraser: Eraser) -> None:
    over, later, old = (loop.add_clip(seed) for seed in (7001, 7002, 7003))
    with loop.database.unit() as unit:
        own = text("UPDATE clips SET retain_until = now() + make_interval(days => :d) WHERE id = :c")
        for clip, days in ((over, -1), (later, 100), (old, 100)):
            unit.session.execute(own, {"d": days, "c": clip})
        unit.commit()
    age(loop, old, 31)
    keep(loop, 30)
    sweep(loop)
    assert eraser.work() == "done"
    assert [clip.id for clip in loop.all(Clip)] == [later]


@pytest.mark.parametrize("when", ["before the sweep", "before the erasure"])
def test_a_hold_stops_retention(loop: Loop, eraser: Eraser, when: str) -> None:
    held, free = loop.add_clip(7001, vehicle="one"), loop.add_clip(7002, vehicle="two")
    for clip in (held, free):
        age(loop, clip, 31)
    keep(loop, 30)
    standing = hold(loop, vehicle="one") if when == "before the sweep" else None
    sweep(loop)
    standing = standing or hold(loop, vehicle="one")
    assert eraser.work() == "done"
    assert [clip.id for clip in loop.all(Clip)] == [held]
    assert sweep(loop) is None
    lift(loop, standing)
    assert sweep(loop) is not None
    assert eraser.work() == "done"
    assert loop.count(Clip) == 0


def test_how_long_clips_are_kept_is_on_record_and_looked_at_every_hour(loop: Loop) -> None:
    keep(loop, 30)
    keep(loop, None)
    with pytest.raises(Invalid, match="0 days"):
        keep(loop, 0)
    entries = loop.all(AuditEntry, AuditEntry.act == "set retention")
    assert [entry.details for entry in entries] == [
        {"from_days": None, "to_days": 30},
        {"from_days": 30, "to_days": None},
    ]
    with loop.database.read() as session:
        schedule = session.execute(text("SELECT job_kind, every_s, job_subject_id FROM schedules")).one()
    assert tuple(schedule) == ("expire", 3600, loop.project_id)
    assert loop.count(Erasure) == 0
