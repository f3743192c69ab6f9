"""The Celery worker of a queue: messages wake its job loop, a timer ticks, and nothing is lost where either fails.

A role (services/workers/inference.py, …) wires its adapters, and calls `run_worker` with a handler for each kind of its
queue. Celery consumes in the main thread with the solo pool, so nothing here forks, and torch may be used.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping

from celery import Celery, signals
from kombu import Exchange, Queue

from engine.adapters.celery_dispatch import TASK, CeleryDispatcher, broker_settings
from engine.jobs import failpoints
from engine.jobs.kinds import QUEUE_OF_KIND, QUEUES, kinds_of_queue
from engine.jobs.perform import Work
from engine.store.database import connect
from engine.store.unit_of_work import Database
from services.settings import Settings
from services.workers.job_loop import JobLoop, LoopTiming
from services.workers.ticker import Ticker

EXIT_STALLED = 75
"""Exit code of a worker that took nothing for a while although there was something: to be started again."""

STALLED_S = 60.0
_SOCKET_TIMEOUT_S = 5.0

log = logging.getLogger(__name__)


def make_app(settings: Settings) -> Celery:
    """The Celery app of the workers. Raises ValueError when no broker is set."""
    if settings.redis_url is None:
        raise ValueError("no broker: set LONGTAIL_REDIS_URL, or use `longtail up`, which starts one")
    app = Celery("longtail", broker=settings.redis_url, set_as_current=False)
    app.conf.update(
        broker_settings(_SOCKET_TIMEOUT_S),
        # Never acknowledged: a message is only a hint, so there is nothing to keep one for. With late acks, an ack that
        # failed as Redis went down left the message counted against a prefetch of 1, and the worker took no other one.
        task_queues=[Queue(name, Exchange(name, type="direct"), routing_key=name, no_ack=True) for name in QUEUES],
        task_create_missing_queues=False,
        worker_prefetch_multiplier=1,
        worker_pool="solo",
        worker_concurrency=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
    )
    # A worker waits for messages with blocking calls; only connecting is bounded, and keepalives find a dead peer.
    app.conf.broker_transport_options = {
        "socket_connect_timeout": _SOCKET_TIMEOUT_S,
        "socket_timeout": 30.0,
        "socket_keepalive": True,
        "health_check_interval": 10,
    }
    return app


def open_database(settings: Settings) -> Database:
    """The database of a worker, whose hints go to the broker. Raises ValueError when either is not set."""
    if settings.database_url is None or settings.redis_url is None:
        raise ValueError("set LONGTAIL_DATABASE_URL and LONGTAIL_REDIS_URL, or use `longtail up`, which starts both")
    return Database(connect(settings.database_url), CeleryDispatcher(settings.redis_url, QUEUE_OF_KIND))


def run_worker(queue: str, settings: Settings, handlers: Mapping[str, Work], database: Database | None = None) -> int:
    """Work on a queue until told to stop (SIGTERM, SIGINT); returns the exit code.

    `handlers` has one for each kind of the queue that this worker does. A job under way at a stop gets a few seconds
    to end; then its lease is given back, which it learns as LeaseLost. Raises ValueError for a handler of another
    queue's kind.
    """
    strange = set(handlers) - set(kinds_of_queue(queue))
    if strange:
        raise ValueError(f"not kinds of the queue {queue!r}: {', '.join(sorted(strange))}")
    failpoints.arm(settings.failpoints)
    database = database or open_database(settings)
    app = make_app(settings)
    timing = LoopTiming(poll_s=settings.poll_seconds, lease_s=settings.lease_seconds)
    loop = JobLoop(database, f"{queue}@{socket.gethostname()}:{os.getpid()}", handlers, timing)
    watchdog = Watchdog(app, queue, loop)
    ticker = Ticker(database, settings.tick_seconds, on_tick=watchdog.look)

    @app.task(name=TASK, shared=False)
    def job_run(kind: str, job_id: str) -> None:
        """The message only wakes the loop: the ledger says what is done."""
        watchdog.message_came()
        loop.serve()
        watchdog.message_came()

    def on_stop(**_: object) -> None:
        loop.stop()

    def leave_logging_alone(**_: object) -> None:
        """Celery sets up no logging where this signal has a receiver: the entry point has done it."""

    signals.worker_shutting_down.connect(on_stop, weak=False)
    signals.setup_logging.connect(leave_logging_alone, weak=False)
    loop.start()
    ticker.start()
    try:
        worker = app.Worker(
            queues=[queue],
            hostname=f"{queue}@{socket.gethostname()}-{os.getpid()}",
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            quiet=True,
        )
        worker.start()
        return int(worker.exitcode or 0)
    finally:
        loop.stop()
        ticker.stop()
        loop.join(LoopTiming.stop_grace_s + 4.0)
        ticker.join(5.0)
        app.close()


class Watchdog:
    """Ends the process with EXIT_STALLED when it is alive without doing its work.

    Two ways are known: the job loop neither works nor looks into the ledger; or messages lie in the queue, the loop
    has nothing to do, and yet none of them arrives (Celery's consumer has stalled after Redis came back). In the
    second case work still moves, at the pace of the polls, so the worker may take its time to be sure.
    """

    def __init__(self, app: Celery, queue: str, loop: JobLoop, stalled_s: float = STALLED_S) -> None:
        self._app = app
        self._queue = queue
        self._loop = loop
        self._stalled_s = stalled_s
        self._consuming_at = time.monotonic()

    def message_came(self) -> None:
        """A message was taken from the queue, or settled."""
        self._consuming_at = time.monotonic()

    def look(self) -> None:
        """Called at every tick, in the ticker's thread; doesn't return when the worker has stalled."""
        reason = self.stalled()
        if reason is not None:
            log.critical("stalled, leaving it to the supervisor to start again: %s", reason)
            logging.shutdown()
            os._exit(EXIT_STALLED)  # other threads are stuck, so nothing that waits for them

    def stalled(self) -> str | None:
        """Why this worker must be started again, or None."""
        if self._loop.idle_s > self._stalled_s:
            return f"the job loop has not looked for jobs for {self._loop.idle_s:.0f} s"
        if self._loop.working or self._messages_waiting() == 0:
            self._consuming_at = time.monotonic()
        elif time.monotonic() - self._consuming_at > self._stalled_s:
            return f"messages wait in {self._queue}, none was taken for {self._stalled_s:.0f} s"
        return None

    def _messages_waiting(self) -> int:
        """0 also where the broker can't be reached: then there is nothing to be taken."""
        options = {"socket_connect_timeout": 0.5, "socket_timeout": 0.5}
        try:
            with self._app.connection_for_read(transport_options=options) as connection:
                return int(connection.default_channel.client.llen(self._queue))
        except Exception as error:
            log.debug("the broker can't be asked: %r", error)
            return 0
