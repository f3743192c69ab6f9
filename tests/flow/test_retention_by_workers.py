"""Nobody does anything: what is too old is found by the schedule and erased by a labeling worker of production."""

from __future__ import annotations

import os
import time

import pytest
from loop_fixtures import Loop
from role_fixtures import Roles
from sqlalchemy import text

from engine.stages.retention import set_retention
from engine.store.tables.privacy import Erasure
from engine.store.tables.recordings import Clip

pytestmark = pytest.mark.slow


def test_an_old_clip_goes_by_itself(loop: Loop, roles: Roles) -> None:
    old, young = loop.add_clip(7001), loop.add_clip(7002)
    loop.label(old)
    loop.freeze()
    with loop.database.unit() as unit:
        aged = "UPDATE clips SET received_at = received_at - interval '31 days' WHERE id = :c"
        unit.session.execute(text(aged), {"c": old})
        set_retention(unit, loop.project_id, 30, "tester")
        unit.commit()
    an_hour_ago = time.time() - 3600
    for path in (loop.folder / "blobs").rglob("*"):  # else it waits a minute for each that is fresh
        os.utime(path, (an_hour_ago, an_hour_ago))
    roles.start("labeling")
    took = roles.wait(lambda: loop.count(Erasure, Erasure.state == "done") == 1, 60)
    print(f"erased {took:.1f} s after the worker was started")
    assert [clip.id for clip in loop.all(Clip)] == [young]
    (erasure,) = loop.all(Erasure)
    assert erasure.receipt is not None
    assert erasure.receipt["removed"]["dataset_rows"] == 4
    assert roles.wait(lambda: not roles.open("erase", "expire"), 30) < 30
