"""`longtail erase`, `erasures`, `holds` and `retention`, as somebody types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from erasure_fixtures import Eraser
from loop_fixtures import Loop
from typer.testing import CliRunner

from engine.domain.refusals import Conflict, Invalid
from engine.store.tables.recordings import Clip
from services.cli.app import app

Here = Callable[..., str]


@pytest.fixture
def here(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.setenv("LONGTAIL_DATABASE_URL", database_url)
    monkeypatch.setenv("LONGTAIL_DATA_DIR", str(tmp_path))

    def run(*arguments: str, answer: str | None = None, code: int = 0) -> str:
        result = CliRunner().invoke(app, arguments, input=answer, catch_exceptions=True)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result.stdout

    return run


def test_an_erasure_is_asked_for_confirmed_and_shown(here: Here, loop: Loop, eraser: Eraser) -> None:
    (clip,) = loop.labelled_drives([7001])
    loop.freeze()
    here("erase", "--clip", str(clip), "--no-wait", answer="n\n", code=1)
    assert loop.jobs("erase") == []
    told = json.loads(here("erase", "--clip", str(clip), "--no-wait", "--yes", "--why", "asked to", "--json"))
    assert (told["state"], told["requested_by"], told["reason"]) == ("due", "cli", "asked to")
    assert eraser.work() == "done"
    assert loop.count(Clip) == 0
    receipt = here("erase", "--clip", str(clip), "--yes")  # the same again waits for nothing
    assert told["id"] in receipt
    assert "roads-0 1: 2 subjects of it" in receipt
    assert json.loads(here("erasures", told["id"], "--json"))["receipt"]["clips"] == 1
    assert told["id"] in here("erasures")
    with pytest.raises(Invalid, match="not clear"):
        here("erase", "--yes")


def test_holds_are_placed_listed_and_lifted(here: Here, loop: Loop) -> None:
    loop.add_clip(7001, vehicle="one")
    placed = json.loads(here("holds", "place", "--vehicle", "one", "--why", "case 12", "--json"))
    with pytest.raises(Conflict, match="case 12"):
        here("erase", "--vehicle", "one", "--yes")
    assert [row["id"] for row in json.loads(here("holds", "list", "--json"))] == [placed["id"]]
    here("holds", "lift", placed["id"], "--why", "settled")
    assert json.loads(here("holds", "list", "--json")) == []
    assert [row["lift_reason"] for row in json.loads(here("holds", "list", "--all", "--json"))] == ["settled"]
    here("erase", "--vehicle", "one", "--yes", "--no-wait")


def test_a_refused_erasure_ends_with_an_error(here: Here, loop: Loop, eraser: Eraser) -> None:
    loop.add_clip(7001, vehicle="one")
    here("erase", "--vehicle", "one", "--yes", "--no-wait")
    here("holds", "place", "--drive", "pool-7001", "--why", "case 12")
    assert eraser.work() == "refused"
    shown = here("erasures", json.loads(here("erasures", "--json"))[0]["id"])
    assert "case 12" in shown


def test_retention_is_set_and_shown(here: Here, loop: Loop) -> None:
    here("retention", "set", "30")
    assert json.loads(here("retention", "show", "--json"))["keep_days"] == 30
    here("retention", "set", code=2)
    here("retention", "set", "--forever")
    assert "no limit" in here("retention", "show")
