"""Sends the hint that a job is due as a Celery message. One that can't be sent at once is dropped, at little cost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from celery import Celery

TASK = "job.run"
"""Name of the one task there is; its arguments are the job's kind and id."""

log = logging.getLogger(__name__)


def broker_settings(timeout_s: float) -> dict[str, object]:
    """What senders and workers set alike: JSON alone, no results, every socket call bounded by `timeout_s`."""
    return {
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_ignore_result": True,
        "result_backend": None,
        "broker_connection_timeout": timeout_s,
        "broker_transport_options": {
            "max_retries": 0,
            "socket_connect_timeout": timeout_s,
            "socket_timeout": timeout_s,
            "retry_on_timeout": False,
        },
        "enable_utc": True,
    }


class CeleryDispatcher:
    """A Dispatcher that never blocks for long and never raises.

    After a send has failed it drops every hint for `pause_s`, so that a burst of them costs one timeout and not many.
    What is dropped costs time alone: workers look into the ledger by themselves, and the sweep sends again.
    """

    def __init__(
        self, broker_url: str, queue_of_kind: Mapping[str, str], timeout_s: float = 0.05, pause_s: float = 1.0
    ) -> None:
        """`broker_url` is redis://…, rediss://… or redis+socket:///path; nothing is connected yet."""
        self._app = Celery("longtail-dispatch", broker=broker_url, set_as_current=False)
        self._app.conf.update(broker_settings(timeout_s), task_publish_retry=False)
        self._queue_of_kind = dict(queue_of_kind)
        self._pause_s = pause_s
        self._closed_until = 0.0
        self._lock = threading.Lock()

    def dispatch(self, job_kind: str, job_id: str, priority: int) -> None:
        """Tell the workers of the kind's queue. The priority isn't sent: a worker takes what the ledger puts first."""
        if time.monotonic() < self._closed_until:
            return
        try:
            self._app.send_task(
                TASK, args=[job_kind, job_id], queue=self._queue_of_kind[job_kind], retry=False, ignore_result=True
            )
        except Exception as error:  # whatever it is, the caller's work is committed and must not fail for a hint
            with self._lock:
                was_open = time.monotonic() >= self._closed_until
                self._closed_until = time.monotonic() + self._pause_s
            if was_open:
                log.warning("hint for %s job %s not sent, work goes on without: %r", job_kind, job_id, error)

    def close(self) -> None:
        """Close the connections to the broker."""
        self._app.close()
