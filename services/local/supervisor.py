"""Starts the roles of one machine in order, keeps them running, and takes them down with it.

Everything happens in one thread of the supervisor's own, because the kernel ties a child's life to the thread that
started it. If this process is killed, the kernel ends the children too.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from services.local.child import Child
from services.local.unprivileged import Account

_POLL_S = 0.1
_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 30.0
_STEADY_S = 60.0  # one that ran this long starts again at the first backoff


@dataclass(frozen=True)
class Role:
    """One program that is to run: how it is started, when it is ready, how it is stopped."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path = Path("/")
    account: Account | None = None
    is_ready: Callable[[], bool] = lambda: True
    when_ready: Callable[[], None] = lambda: None
    """Done once, at the first start, before the next wave: tables are made, migrations applied."""
    ready_timeout_s: float = 60.0
    awaited: bool = True
    """Whether the start waits for it; one that isn't may come up while the rest goes on."""
    grace_s: float = 10.0
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL


@dataclass(frozen=True)
class Event:
    """Something to tell the user."""

    role: str
    kind: Literal["starting", "ready", "exited", "restarting", "stopping", "stopped"]
    seconds: float = 0.0  # how long it took, or will take
    detail: str = ""


class StartFailed(RuntimeError):
    """A role did not come up; the message ends with the last lines of its log."""


@dataclass
class _Running:
    role: Role
    child: Child
    started: float = field(default_factory=time.monotonic)
    restarts: int = 0
    failures: int = 0  # exits in a row that came before _STEADY_S
    restart_at: float | None = None
    ready: bool = False


class Supervisor:
    """Runs waves of roles: those of one wave start together, and the next wave begins when all of it is ready."""

    def __init__(
        self,
        waves: Sequence[Sequence[Role]],
        logs: Path,
        on_event: Callable[[Event], None] = lambda event: None,
        on_change: Callable[[dict[str, dict[str, object]]], None] = lambda roles: None,
    ) -> None:
        """`on_event` and `on_change` are called in the supervisor's thread.

        `on_change` gets what the state file shall say of each role: its state, pid and restarts.
        """
        self._waves = waves
        self._logs = logs
        self._on_event = on_event
        self._on_change = on_change
        self._running: list[_Running] = []
        self._stopping = threading.Event()
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Returns when every role is ready. Raises StartFailed, after stopping the rest, when one won't be."""
        self._thread.start()
        self._started.wait()
        self.check()

    def stop(self) -> None:
        """Stop every role, the last started first; returns when all are gone. May be called twice."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def wait_for(self, name: str, timeout_s: float = 300.0) -> None:
        """Returns when this role is ready. Raises StartFailed when it is not within the time, or is not one of ours."""
        running = next((each for each in self._running if each.role.name == name), None)
        if running is None:
            raise StartFailed(f"{name} is not started here")
        until = time.monotonic() + timeout_s
        while not running.ready:
            self.check()
            if time.monotonic() > until:
                raise StartFailed(f"{name} was not ready after {timeout_s:.0f} s:\n{running.child.last_lines()}")
            time.sleep(_POLL_S)

    def check(self) -> None:
        """Raises what ended the supervisor, if it has failed itself."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            for wave in self._waves:
                self._start_wave(wave)
            self._started.set()
            while not self._stopping.wait(_POLL_S):
                for running in self._running:
                    self._watch(running)
        except BaseException as failure:
            self._failure = failure
        finally:
            self._stop_all()
            self._started.set()

    def _start_wave(self, wave: Sequence[Role]) -> None:
        waiting: list[_Running] = []
        for role in wave:
            if self._stopping.is_set():
                return
            self._on_event(Event(role.name, "starting"))
            running = _Running(role, self._launch(role))
            self._running.append(running)
            if role.awaited:
                waiting.append(running)
        self._changed()
        while waiting and not self._stopping.is_set():
            for running in list(waiting):
                if self._came_up(running):
                    waiting.remove(running)
            time.sleep(0.02)

    def _came_up(self, running: _Running) -> bool:
        role = running.role
        elapsed = time.monotonic() - running.started
        code = running.child.exit_code
        if code is not None:
            raise StartFailed(f"{role.name} exited ({code}) as it started:\n{running.child.last_lines()}")
        if not role.is_ready():
            if elapsed > role.ready_timeout_s:
                lines = running.child.last_lines()
                raise StartFailed(f"{role.name} was not ready after {role.ready_timeout_s:.0f} s:\n{lines}")
            return False
        role.when_ready()
        running.ready = True
        self._on_event(Event(role.name, "ready", time.monotonic() - running.started))
        self._changed()
        return True

    def _watch(self, running: _Running) -> None:
        now = time.monotonic()
        role = running.role
        code = running.child.exit_code
        if running.restart_at is not None:
            if now < running.restart_at:
                return
            running.child = self._launch(role)
            running.started, running.restart_at, running.ready = now, None, False
            running.restarts += 1
            self._changed()
        elif code is not None:
            running.child.stop(grace_s=0)  # what it started may still hold its ports
            running.failures = 1 if now - running.started > _STEADY_S else running.failures + 1
            pause = min(_FIRST_BACKOFF_S * 2 ** (running.failures - 1), _LONGEST_BACKOFF_S)
            running.restart_at, running.ready = now + pause, False
            self._on_event(Event(role.name, "exited", detail=f"exit code {code}, see {running.child.log}"))
            self._on_event(Event(role.name, "restarting", pause))
            self._changed()
        elif not running.ready and role.is_ready():
            running.ready = True
            self._on_event(Event(role.name, "ready", now - running.started))
            self._changed()

    def _launch(self, role: Role) -> Child:
        return Child(
            role.command,
            role.environment,
            self._logs / f"{role.name}.log",
            folder=role.folder,
            account=role.account,
            stop_signal=role.stop_signal,
            death_signal=role.death_signal,
        )

    def _stop_all(self) -> None:
        """The roles of one wave are asked together and waited for together, the last wave first."""
        by_name = {running.role.name: running for running in self._running}
        for wave in reversed(self._waves):
            leaving = [by_name[role.name] for role in wave if role.name in by_name]
            for running in leaving:
                self._on_event(Event(running.role.name, "stopping"))
                running.child.request_stop()
            for running in leaving:
                running.child.stop(running.role.grace_s)
                self._on_event(Event(running.role.name, "stopped"))

    def _changed(self) -> None:
        states: dict[str, dict[str, object]] = {}
        for running in self._running:
            state = "restarting" if running.restart_at is not None else "ready" if running.ready else "starting"
            pid = running.child.pid if running.restart_at is None else None
            states[running.role.name] = {"state": state, "pid": pid, "restarts": running.restarts}
        self._on_change(states)
