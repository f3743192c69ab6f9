"""One child process that can't outlive us: started, watched and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from services.local import launch
from services.local.unprivileged import Account

_LOG_LIMIT = 10 * 1024 * 1024


class Child:
    """A program in a session of its own, whose output goes to a log file.

    It gets `death_signal` from the kernel when the thread that started it ends, so a child must be started from a
    thread that lives as long as the child should.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        folder: Path = Path("/"),
        account: Account | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        death_signal: signal.Signals = signal.SIGKILL,
    ) -> None:
        """Start the program. One that is missing exits with 127, and its log says so."""
        uid, gid = (account.uid, account.gid) if account and account.switched else (-1, -1)
        launcher = [
            sys.executable,
            "-I",
            "-S",
            launch.__file__,
            str(os.getpid()),
            str(int(death_signal)),
            str(uid),
            str(gid),
        ]
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists() and log.stat().st_size > _LOG_LIMIT:
            log.replace(log.with_name(log.name + ".1"))
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*launcher, *command],
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.log = log
        self._stop_signal = stop_signal
        self._asked_to_stop = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def request_stop(self) -> None:
        """Ask the program to end, without waiting; once only, as to some a second signal means "at once"."""
        if self.exit_code is None and not self._asked_to_stop:
            self._asked_to_stop = True
            self._process.send_signal(self._stop_signal)

    def stop(self, grace_s: float = 10.0) -> None:
        """End the program: ask, wait for `grace_s`, then kill it and what it started."""
        self.request_stop()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s)
        self._kill_session()
        self._process.wait()

    def last_lines(self, count: int = 15) -> str:
        """The end of its log, for an error message."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])

    def _kill_session(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
