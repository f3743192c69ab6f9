"""The kinds of jobs: who does them, with what, how often a failure is tried again, how long a lease lasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

QUEUES = ("inference", "labeling", "retraining", "gating")

JobState = Literal["due", "leased", "done", "dead", "cancelled"]

LIVE = 0
"""Priority of work that a vehicle, a person or a schedule is waiting for."""
BACKFILL = -100
"""Priority of work on what is already stored: after live work, yet never starved by it."""


@dataclass(frozen=True)
class JobKind:
    """A kind of job. `lease_s` is how long a silent worker keeps a job: a living one renews it three times as often."""

    name: str
    queue: str
    resource_class: str
    max_attempts: int
    lease_s: float


JOB_KINDS: dict[str, JobKind] = {
    kind.name: kind
    for kind in (
        JobKind("score", "inference", "accelerator", max_attempts=6, lease_s=30),
        JobKind("select", "labeling", "cpu", max_attempts=6, lease_s=30),
        JobKind("push", "labeling", "network", max_attempts=8, lease_s=30),
        JobKind("collect", "labeling", "network", max_attempts=8, lease_s=30),
        JobKind("accept", "labeling", "cpu", max_attempts=6, lease_s=30),
        JobKind("erase", "labeling", "network", max_attempts=20, lease_s=60),
        JobKind("expire", "labeling", "cpu", max_attempts=6, lease_s=30),
        JobKind("freeze", "gating", "cpu", max_attempts=6, lease_s=60),
        JobKind("train", "retraining", "accelerator", max_attempts=8, lease_s=60),
        JobKind("judge", "gating", "accelerator", max_attempts=6, lease_s=30),
        JobKind("promote", "gating", "cpu", max_attempts=6, lease_s=30),
    )
}

QUEUE_OF_KIND: dict[str, str] = {kind.name: kind.queue for kind in JOB_KINDS.values()}


def job_kind(name: str) -> JobKind:
    """The kind of this name. Raises ValueError when there is none."""
    try:
        return JOB_KINDS[name]
    except KeyError:
        raise ValueError(f"no job kind {name!r}; there are {', '.join(JOB_KINDS)}") from None


def kinds_of_queue(queue: str) -> tuple[str, ...]:
    """The kinds that the workers of a queue do. Raises ValueError when there is no such queue."""
    if queue not in QUEUES:
        raise ValueError(f"no queue {queue!r}; there are {', '.join(QUEUES)}")
    return tuple(kind.name for kind in JOB_KINDS.values() if kind.queue == queue)
