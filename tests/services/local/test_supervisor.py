"""The supervisor starts roles in order, keeps them running and takes all of them down."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from services.local.supervisor import Event, Role, StartFailed, Supervisor
from services.settings import system_environment


def role(name: str, script: str, **options: object) -> Role:
    return Role(name, ["/bin/sh", "-c", script], system_environment(), **options)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.02)


class Story:
    """What a supervisor told, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.states: dict[str, dict] = {}

    def heard(self, kind: str) -> list[str]:
        return [event.role for event in self.events if event.kind == kind]

    def supervise(self, waves: list[list[Role]], logs: Path) -> Supervisor:
        def on_change(states: dict) -> None:
            self.states = states

        return Supervisor(waves, logs, self.events.append, on_change)


def test_a_wave_begins_when_the_one_before_is_ready_and_they_stop_in_reverse(tmp_path: Path) -> None:
    flag = tmp_path / "first-is-up"
    story = Story()
    first = role("first", f"sleep 0.2; touch {flag}; sleep 300", is_ready=flag.exists)
    second = role("second", f"test -e {flag} && sleep 300")
    supervisor = story.supervise([[first], [second]], tmp_path)
    supervisor.start()
    supervisor.stop()
    assert [(event.role, event.kind) for event in story.events] == [
        ("first", "starting"),
        ("first", "ready"),
        ("second", "starting"),
        ("second", "ready"),
        ("second", "stopping"),
        ("second", "stopped"),
        ("first", "stopping"),
        ("first", "stopped"),
    ]


def test_what_is_done_when_a_role_is_ready_is_done_once_and_before_the_next_wave(tmp_path: Path) -> None:
    done = tmp_path / "done"
    story = Story()
    first = role(
        "first", "sleep 300", when_ready=lambda: done.write_text("x" + done.read_text() if done.exists() else "x")
    )
    supervisor = story.supervise([[first], [role("second", f"test -e {done} && sleep 300")]], tmp_path)
    supervisor.start()
    os.kill(story.states["first"]["pid"], signal.SIGKILL)
    wait_until(lambda: story.states["first"] == {**story.states["first"], "state": "ready", "restarts": 1})
    supervisor.stop()
    assert done.read_text() == "x"


def test_a_role_that_dies_is_started_again_with_growing_pauses(tmp_path: Path) -> None:
    story = Story()
    supervisor = story.supervise([[role("worker", "sleep 300")]], tmp_path)
    supervisor.start()
    for restarts in (1, 2):
        os.kill(story.states["worker"]["pid"], signal.SIGKILL)
        wait_until(
            lambda n=restarts: story.states["worker"]["restarts"] == n and story.states["worker"]["state"] == "ready"
        )
    supervisor.stop()
    assert [event.seconds for event in story.events if event.kind == "restarting"] == [0.5, 1.0]
    assert story.heard("exited") == ["worker", "worker"]


def test_a_role_that_exits_as_it_starts_is_told_with_its_last_words_and_the_rest_is_stopped(tmp_path: Path) -> None:
    story = Story()
    waves = [[role("good", "sleep 300")], [role("bad", "echo the disk is full; exit 3", is_ready=lambda: False)]]
    with pytest.raises(StartFailed, match=r"(?s)bad exited \(3\).*the disk is full"):
        story.supervise(waves, tmp_path).start()
    assert story.heard("stopped") == ["bad", "good"]


def test_a_role_that_never_gets_ready_is_told(tmp_path: Path) -> None:
    never = role("never", "echo still waiting; sleep 300", is_ready=lambda: False, ready_timeout_s=0.6)
    with pytest.raises(StartFailed, match=r"(?s)not ready after 1 s.*still waiting"):
        Supervisor([[never]], tmp_path).start()


def test_stopping_while_it_starts_leaves_nothing_behind(tmp_path: Path) -> None:
    story = Story()
    supervisor = story.supervise([[role("slow", "sleep 300", is_ready=lambda: False)]], tmp_path)
    starter = threading.Thread(target=supervisor.start)
    starter.start()
    wait_until(lambda: "slow" in story.states)
    pid = story.states["slow"]["pid"]
    supervisor.stop()
    starter.join(10)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_roles_can_be_python_programs(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    code = f"import pathlib, time; pathlib.Path({str(marker)!r}).touch(); time.sleep(300)"
    python = Role("python", [sys.executable, "-c", code], system_environment(), is_ready=marker.exists)
    supervisor = Supervisor([[python]], tmp_path)
    supervisor.start()
    supervisor.stop()
    assert marker.exists()
