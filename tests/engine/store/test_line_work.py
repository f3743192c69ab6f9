"""A line is busy from the moment that a retraining is due until its last run is over."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from loop_fixtures import Loop
from sqlalchemy import text

from engine.stages import retrain
from engine.store.line_work import Busy, busy_with


def busy(loop: Loop) -> Busy | None:
    with loop.database.read() as session:
        return busy_with(session, loop.line_id)


def set_state(loop: Loop, table: str, row_id: uuid.UUID, state: str) -> None:
    with loop.database.unit() as unit:
        unit.session.execute(text(f"UPDATE {table} SET state = :state WHERE id = :id"), {"id": row_id, "state": state})
        unit.commit()


def test_a_line_is_busy_while_it_is_frozen_and_trained(loop: Loop) -> None:
    loop.labelled_drives([1])
    assert busy(loop) is None
    with loop.database.unit() as unit:
        retrain.request(unit, loop.line_id, target_heads=["light"], noise_seeds=[7])
        unit.commit()
    before = busy(loop)
    lease = loop.claim("freeze")
    assert busy(loop) == before == Busy(f"labels are being frozen for a retraining of its line (job {lease.job_id})")
    _, (challenger, noise) = retrain.retrain(loop.database, loop.blobs, loop.reader, lease)
    assert busy(loop) == Busy(f"a run of its line is due ({challenger}, and 1 more)", challenger)
    set_state(loop, "runs", noise, "running")
    assert busy(loop).run_id == noise, "the one that is at work is named first"
    set_state(loop, "runs", noise, "finished")
    assert busy(loop).told == f"a run of its line is due ({challenger})"
    set_state(loop, "runs", challenger, "refused")
    assert busy(loop) is None


def test_a_run_whose_training_has_died_holds_nothing_up_until_it_is_tried_again(loop: Loop) -> None:
    loop.labelled_drives([1])
    run = loop.start_run(loop.freeze().id)
    (job,) = loop.jobs("train")
    for state, expected in (("dead", False), ("due", True), ("cancelled", False)):
        set_state(loop, "jobs", job.id, state)
        assert (busy(loop) is not None) == expected, state
    with loop.database.unit() as unit:
        unit.session.execute(text("DELETE FROM jobs WHERE id = :id"), {"id": job.id})
        unit.commit()
    assert busy(loop).told.endswith(f"({run})"), "what nobody can tell to be over is not"


def test_another_line_is_another_matter(make_loop: Callable[..., Loop]) -> None:
    first, second = make_loop(), make_loop()
    first.labelled_drives([1])
    first.start_run(first.freeze().id)
    assert busy(first) is not None
    assert busy(second) is None
