"""`longtail schedules`: made, shown, paused, resumed, run and removed, by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.domain.refusals import Conflict, Invalid, NotFound
from engine.stages.register import make_line, register_ontology
from engine.store.database import connect
from engine.store.projects import ensure_default
from engine.store.unit_of_work import Database
from services.cli.app import app
from services.wiring import Undispatched


@pytest.fixture
def longtail(database_url: str, tmp_path: Path) -> Callable[..., str]:
    """Runs `longtail schedules …` on a project with the line "yard"; returns what it printed."""
    engine = connect(database_url)
    with Database(engine, Undispatched()).unit() as unit:
        project_id = ensure_default(unit.session).id
        heads = [{"name": "people", "kind": "boxes", "classes": ["person"]}]
        register_ontology(unit, project_id, {"name": "yard", "version": 1, "heads": heads})
        make_line(unit, project_id, "yard", "yard", 1, {}, "test")
        unit.commit()
    engine.dispose()
    environment = {"LONGTAIL_DATABASE_URL": database_url, "LONGTAIL_DATA_DIR": str(tmp_path)}

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["schedules", *arguments], env=environment, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


NIGHTLY = ("add", "nightly", "--line", "yard", "--target", "people", "--cron", "30 3 * * *")


def test_from_making_to_removing(longtail: Callable[..., str]) -> None:
    assert "none" in longtail("list")
    made = json.loads(longtail(*NIGHTLY, "--zone", "Asia/Tokyo", "--noise-seed", "7", "--steps", "9", "--json"))
    assert (made["rule"], made["next_due"][11:16]) == ("At 03:30 every day, Asia/Tokyo", "18:30")
    assert (made["noise_seeds"], made["overrides"], made["start"]) == ([7], {"steps": 9}, "warm")
    table = longtail("add", "fed", "--line", "yard", "--target", "people", "--new-labels", "500", "--source", "human")
    assert "at 500 new labels" in table
    assert "not counted yet" in table
    assert [row["name"] for row in json.loads(longtail("list", "--json"))] == ["nightly", "fed"]
    assert json.loads(longtail("list", "--line", "other", "--json")) == []
    assert json.loads(longtail("pause", "nightly", "--json"))["state"] == "paused"
    assert json.loads(longtail("resume", "nightly", "--json"))["state"] == "active"
    ran = json.loads(longtail("run", "nightly", "--json"))
    assert (ran["last"]["asked_by"], ran["last"]["job_state"]) == ("cli", "due")
    assert "freeze job due" in longtail("list")
    with pytest.raises(Conflict, match="can't run now"):
        longtail("run", "fed")
    assert json.loads(longtail("remove", "nightly", "--json")) == {"removed": "nightly"}
    assert "is removed" in longtail("remove", "fed")
    assert json.loads(longtail("list", "--json")) == []


def test_what_is_wrong_is_told(longtail: Callable[..., str]) -> None:
    longtail(*NIGHTLY)
    with pytest.raises(NotFound, match="no schedule 'nihgtly'") as missing:
        longtail("pause", "nihgtly")
    assert missing.value.hint == "there are: nightly"
    with pytest.raises(Invalid, match="has one rule"):
        longtail("add", "both", "--line", "yard", "--target", "people", "--cron", "0 0 * * *", "--new-labels", "5")
    with pytest.raises(Invalid, match="source 'auto'"):
        longtail("add", "auto", "--line", "yard", "--target", "people", "--new-labels", "5", "--source", "auto")
    with pytest.raises(Invalid, match="no time zone"):
        longtail("add", "zone", "--line", "yard", "--target", "people", "--cron", "0 0 * * *", "--zone", "Nowhere")
