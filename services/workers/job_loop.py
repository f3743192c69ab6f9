"""Does the jobs of a worker, in one thread, whether messages arrive or not."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from engine.jobs.perform import Work, perform
from engine.store.unit_of_work import Database

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoopTiming:
    """Times in seconds."""

    poll_s: float = 2.0
    """An idle loop looks into the ledger at least this often."""
    pass_s: float = 20.0
    """After this long a pass ends even though jobs are due (another one follows), so that its message is settled."""
    stop_grace_s: float = 4.0
    """How long a job under way may go on after a stop; then its lease is given back."""
    lease_s: float | None = None
    """Replaces the lease of every kind."""


class JobLoop:
    """One thread that claims and does jobs, one at a time, kind by kind in turn, as long as any are due.

    A message only wakes it. Without messages (none sent, Redis lost them, Redis is down) it finds the same jobs at its
    next poll. It takes whatever the ledger puts first, not the job that the message names, so an old message of a
    low priority can't put its job before a newer one of a high priority.
    """

    def __init__(
        self, database: Database, owner: str, handlers: Mapping[str, Work], timing: LoopTiming | None = None
    ) -> None:
        self._database = database
        self._owner = owner
        self._handlers = dict(handlers)
        self._timing = timing or LoopTiming()
        self._turn = threading.Condition()
        self._asked = 0
        self._served = 0
        self._ended = False
        self._stopping = threading.Event()
        self._stopped_at = 0.0
        self._working = False
        self._last_pass = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="job-loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def serve(self) -> None:
        """Wake the loop; returns when a pass that began after this call has ended, or the loop has."""
        with self._turn:
            self._asked += 1
            mine = self._asked
            self._turn.notify_all()
            while self._served < mine and not self._ended:
                self._turn.wait(1.0)  # in slices, so that signals are seen

    def stop(self) -> None:
        """End after the job under way, or once that has learned that it lost its lease. Safe in a signal handler."""
        self._stopped_at = time.monotonic()
        self._stopping.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end after `stop`; False when a job is still under way then."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def working(self) -> bool:
        """Whether a job is being claimed or done."""
        return self._working

    @property
    def idle_s(self) -> float:
        """Seconds since a pass or job last ended; 0 while one is under way. Grows where the loop is stuck or dead."""
        return 0.0 if self._working and self._thread.is_alive() else time.monotonic() - self._last_pass

    def _run(self) -> None:
        more = False
        try:
            while not self._stopping.is_set():
                asked = self._wait(0.0 if more else self._timing.poll_s * random.uniform(0.7, 1.0))
                try:
                    more = self._pass()
                except Exception:  # the database is away, most likely: the loop outlives that
                    log.exception("can't claim")
                    more = False
                    self._stopping.wait(1.0)
                with self._turn:
                    self._served = asked
                    self._last_pass = time.monotonic()
                    self._turn.notify_all()
        finally:
            with self._turn:
                self._ended = True
                self._turn.notify_all()

    def _wait(self, seconds: float) -> int:
        deadline = time.monotonic() + seconds
        with self._turn:
            while self._asked == self._served and not self._stopping.is_set() and time.monotonic() < deadline:
                self._turn.wait(min(0.5, max(0.0, deadline - time.monotonic())))
            return self._asked

    def _pass(self) -> bool:
        """Do due jobs until none is left (False) or the pass has lasted long enough (True)."""
        deadline = time.monotonic() + self._timing.pass_s
        done = 1
        while done and time.monotonic() < deadline:
            done = 0
            for kind, work in self._handlers.items():
                if self._stopping.is_set():
                    return False
                done += self._perform(kind, work)
        return done > 0

    def _perform(self, kind: str, work: Work) -> int:
        self._working = True
        try:
            return perform(
                self._database,
                kind,
                self._owner,
                work,
                lease_s=self._timing.lease_s,
                release=self._must_release,
            )
        finally:
            self._last_pass = time.monotonic()
            self._working = False

    def _must_release(self) -> bool:
        return self._stopping.is_set() and time.monotonic() - self._stopped_at > self._timing.stop_grace_s
