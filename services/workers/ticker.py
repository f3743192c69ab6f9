"""The tick: sweep and schedules, by a timer in every worker. So there is no beat process to die."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from engine.jobs import sweep
from engine.stages.fire_retrains import fire_retrains
from engine.store.unit_of_work import Database

TICK_LOCK = int.from_bytes(b"longtail", "big")
"""Key of the advisory lock, one per database, that the worker which ticks holds."""

log = logging.getLogger(__name__)


class Ticker(threading.Thread):
    """Sweeps every `every_s` seconds, if no other worker does it.

    One worker holds the lock, on a connection of its own, from tick to tick; when it dies the server frees the lock,
    and another has it at its next tick. One that hangs without dying loses it too: the server ends a
    session that has been silent for `silent_s`. Two that sweep at once, for that moment, do no harm.
    """

    def __init__(
        self,
        database: Database,
        every_s: float,
        on_tick: Callable[[], None] = lambda: None,
        resend_s: float = sweep.RESEND_S,
        silent_s: float | None = None,
    ) -> None:
        """`on_tick` is called at every tick, whoever sweeps."""
        super().__init__(name="ticker", daemon=True)
        self._database = database
        self._every_s = every_s
        self._on_tick = on_tick
        self._resend_s = resend_s
        self._silent_s = silent_s or max(2.0, 3 * every_s)
        self._stopping = threading.Event()
        self._lock: Connection | None = None

    @property
    def leads(self) -> bool:
        """Whether this is the one that sweeps."""
        return self._lock is not None

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.tick()
                self._stopping.wait(self._every_s)
        finally:
            self._let_go()

    def stop(self) -> None:
        """End after the tick under way, and let another lead."""
        self._stopping.set()

    def tick(self) -> sweep.Swept | None:
        """One tick, in the calling thread: what was swept, or None where another leads or the database is away."""
        swept = None
        try:
            if self._holds_lock():
                swept = sweep.sweep(self._database, self._resend_s)
                if swept.taken_back or swept.died or swept.fired or swept.sent:
                    log.debug("tick: %s", swept)
                retrains = fire_retrains(self._database)
                if retrains:
                    log.info("schedules made retrainings due: %d", retrains)
        except SQLAlchemyError as error:
            self._let_go()
            log.warning("no tick, the database can't be reached: %s", error)
        except Exception:
            log.exception("tick failed")
        self._on_tick()
        return swept

    def _holds_lock(self) -> bool:
        if self._lock is not None:
            self._lock.execute(text("SELECT 1"))  # raises when the server has ended the session, and the lock with it
            return True
        connection = self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        connection.detach()  # never back into the pool: the lock ends with its session
        try:
            connection.execute(
                text("SELECT set_config('idle_session_timeout', :ms, false)"), {"ms": str(int(self._silent_s * 1000))}
            )
            if connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": TICK_LOCK}).scalar_one():
                self._lock = connection
        finally:
            if self._lock is None:
                connection.close()
        return self._lock is not None

    def _let_go(self) -> None:
        connection, self._lock = self._lock, None
        if connection is not None:
            try:
                connection.close()
            except SQLAlchemyError:
                log.debug("the tick's session was gone already")
