"""The commands: help that needs no manual, errors that say what to do, JSON for machines."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Engine, update
from sqlalchemy.orm import Session
from typer.main import get_command
from typer.testing import CliRunner

from engine.domain.refusals import Invalid, NotFound
from engine.jobs import ledger
from engine.store.database import connect
from engine.store.projects import ensure_default
from engine.store.tables.access import Project
from engine.store.tables.metadata import new_id
from engine.store.tables.work import Job
from engine.store.unit_of_work import Database
from services.cli.app import app
from services.settings import system_environment
from services.wiring import Undispatched


def longtail(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment: Mapping[str, str] = {**system_environment(), "COLUMNS": "120", **settings}
    return subprocess.run(
        [sys.executable, "-m", "services.cli", *arguments], capture_output=True, text=True, env=environment, check=False
    )


def commands() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []

    def walk(command: object, path: tuple[str, ...]) -> None:
        inner = getattr(command, "commands", None)
        if inner is None:
            found.append(path)
            return
        for name, child in inner.items():
            walk(child, (*path, name))

    walk(get_command(app), ())
    return found


def test_all_commands_of_the_loop_are_there() -> None:
    wanted = {
        "up",
        "demo",
        "demo-real",
        "ingest",
        "import",
        "status",
        "queue",
        "retrain",
        "judge",
        "promote",
        "rollback",
    }
    assert {path[0] for path in commands()} >= wanted | {"jobs", "devices", "tokens", "worker", "api"}


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_every_command_says_what_it_does(path: tuple[str, ...]) -> None:
    command = get_command(app)
    for name in path:
        command = command.commands[name]  # type: ignore[attr-defined]
    assert command.help
    assert len(command.help) > 10
    for parameter in command.params:
        assert getattr(parameter, "help", None) or parameter.name == "help", f"{path}: {parameter.name} has no help"


def test_help_is_quick_because_it_imports_little() -> None:
    program = "import sys; import services.cli.app; print([m for m in ('torch', 'celery', 'av') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_running_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    done = longtail("status", LONGTAIL_DATA_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "longtail up" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_database_that_is_away_is_one_line(tmp_path: Path) -> None:
    url = f"postgresql+psycopg://nobody@/none?host={tmp_path}"
    done = longtail("status", LONGTAIL_DATABASE_URL=url, LONGTAIL_DATA_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "the database can't be reached" in done.stderr


@pytest.fixture
def here(database_url: str, tmp_path: Path) -> Callable[..., str]:
    """Runs a command in this process against a fresh database; returns what it printed."""
    environment = {"LONGTAIL_DATABASE_URL": database_url, "LONGTAIL_DATA_DIR": str(tmp_path)}

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, list(arguments), env=environment, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def test_an_administrator_makes_lists_and_revokes(here: Callable[..., str]) -> None:
    made = json.loads(here("tokens", "create", "ada", "--scope", "clips:read", "--json"))
    assert made["secret"].startswith("lt_token_")
    with pytest.raises(Invalid, match="no scope 'everything'"):
        here("tokens", "create", "bob", "--scope", "everything")
    device = json.loads(here("devices", "add", "van-1", "--vehicle", "v1", "--json"))
    here("devices", "revoke", device["id"])
    listed = json.loads(here("devices", "list", "--json"))
    assert [(row["name"], row["revoked_at"] is None) for row in listed] == [("van-1", False)]
    assert "secret" not in here("tokens", "list", "--json")


def test_a_typing_error_in_a_filter_is_one(here: Callable[..., str]) -> None:
    here("tokens", "create", "ada", "--scope", "admin")
    assert json.loads(here("jobs", "list", "--state", "dead", "--kind", "score", "--json")) == []
    for wrong in ("jobs list --state daed", "jobs list --kind scoer", "queue --state opn"):
        done = CliRunner().invoke(app, wrong.split())
        assert done.exit_code == 2
        assert wrong.split()[-1] in done.output


def test_a_waiver_is_for_a_rule_that_can_be_waived_for_a_head_and_for_a_reason() -> None:
    for wrong, told in (
        ("--waive floor --why because", "no rule 'floor'"),
        ("--waive unlearnt_head --why because", "give unlearnt_head:HEAD"),
        ("--waive within_one_drive", "say --why"),
    ):
        done = CliRunner().invoke(app, ["judge", str(uuid4()), *wrong.split()], env={"COLUMNS": "200"})
        assert (done.exit_code, told in done.output) == (2, True), done.output


def test_a_dead_job_is_retried_within_its_project(here: Callable[..., str], database_engine: Engine) -> None:
    here("tokens", "create", "ada", "--scope", "admin")
    with Session(database_engine) as session:
        other = Project(id=new_id(), name="other")
        session.add(other)
        session.flush()
        ours, theirs = (
            Job(
                id=new_id(), project_id=project_id, kind="score", subject_id=new_id(), dedupe_key=str(new_id()),
                payload={}, state="dead", resource_class="cpu", max_attempts=1,
            )
            for project_id in (ensure_default(session).id, other.id)
        )  # fmt: skip
        session.add_all([ours, theirs])
        session.commit()
        assert "is due again" in here("jobs", "retry", str(ours.id))
        with pytest.raises(NotFound, match="there is no job"):
            here("jobs", "retry", str(theirs.id))
        session.expire_all()
        assert (ours.state, theirs.state) == ("due", "dead")


def test_status_of_an_empty_project_is_whole(here: Callable[..., str]) -> None:
    here("tokens", "create", "ada", "--scope", "admin")
    document = json.loads(here("status", "--json"))
    assert document["clips"] == {}
    assert document["stuck"] == []
    assert "clips" in here("status")


def test_a_taken_port_is_one_line_that_names_the_setting(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = longtail("demo", LONGTAIL_DATA_DIR=str(tmp_path / "data"), LONGTAIL_LABEL_STUDIO_PORT=port)
    assert done.returncode == 1
    assert "LONGTAIL_LABEL_STUDIO_PORT" in done.stderr
    assert "Traceback" not in done.stderr


def test_routine_jobs_that_went_well_are_left_out(here: Callable[..., str], database_url: str) -> None:
    here("tokens", "create", "ada", "--scope", "admin")
    engine = connect(database_url)
    with Database(engine, Undispatched()).unit() as unit:
        project = ensure_default(unit.session).id
        for key, state in (("schedule:a", "done"), ("schedule:b", "due"), ("score:c", "done")):
            job = ledger.enqueue(unit, kind="score", project_id=project, subject_id=uuid4(), dedupe_key=key)
            unit.session.execute(update(Job).where(Job.id == job).values(state=state))
        unit.commit()
    engine.dispose()

    def keys(*more: str) -> set[str]:
        return {row["dedupe_key"] for row in json.loads(here("jobs", "list", "--json", *more))}

    assert keys() == {"schedule:b", "score:c"}
    assert keys("--all") == {"schedule:a", "schedule:b", "score:c"}
    assert json.loads(here("models", "--json")) == []
