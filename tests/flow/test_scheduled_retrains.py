"""Two schedules of a line, and the workers of production: each thing that is due is retrained once."""

from __future__ import annotations

from typing import Any

import pytest
from loop_fixtures import Loop
from role_fixtures import Roles
from sqlalchemy import text

from engine.queries import schedules as views
from engine.stages.schedule_retrains import ScheduleRequest, make_schedule
from engine.store.tables.labels import DatasetVersion
from engine.store.tables.models import ModelVersion, Run
from engine.store.tables.work import ScheduleFiring


def execute(loop: Loop, sql: str) -> None:
    with loop.database.unit() as unit:
        unit.session.execute(text(sql))
        unit.commit()


def told(loop: Loop) -> dict[str, dict[str, Any]]:
    with loop.database.read() as session:
        return {row["name"]: row for row in views.listing(session, loop.project_id, 10)}


@pytest.mark.slow
def test_what_was_due_while_all_workers_were_down_and_what_is_labelled_later(loop: Loop, roles: Roles) -> None:
    loop.labelled_drives([1, 2, 3])
    line = loop.line().name
    with loop.database.unit() as unit:
        for request in (
            ScheduleRequest("often", line, ["road"], cron="*/10 * * * *"),
            ScheduleRequest("fed", line, ["light"], new_labels=4, label_sources=["simulator"], noise_seeds=[7]),
        ):
            make_schedule(unit, loop.project_id, request, "test")
        unit.commit()
    execute(loop, "UPDATE schedules SET next_due = clock_timestamp() - interval '2 days' WHERE name = 'often'")
    for queue in ("gating", "gating", "retraining"):
        roles.start(queue)

    roles.wait(lambda: loop.count(ModelVersion) == 1, 120)
    execute(loop, "UPDATE schedules SET enabled = false WHERE name = 'often'")  # its next time may come meanwhile
    # The twelve labels were enough for the other schedule too, but they are in this version now.
    roles.wait(lambda: told(loop)["fed"]["counted"] == 0, 60)
    assert (loop.count(ScheduleFiring), loop.count(DatasetVersion), loop.count(Run)) == (1, 1, 1)
    assert told(loop)["often"]["last"]["runs"][0]["model_number"] == 1

    loop.labelled_drives([4])
    execute(loop, "UPDATE schedules SET next_due = clock_timestamp() WHERE name = 'fed'")
    roles.wait(lambda: loop.count(ModelVersion) == 3, 120)
    last = told(loop)["fed"]["last"]
    assert (last["new_labels"], last["dataset"]["number"]) == (4, 2)
    assert [(run["purpose"], run["state"]) for run in last["runs"]] == [
        ("challenger", "finished"),
        ("noise", "finished"),
    ]
    assert all(run.target_heads == ["light"] for run in loop.all(Run)[1:])
    assert (loop.count(ScheduleFiring), loop.count(DatasetVersion), loop.count(Run)) == (2, 2, 3)
