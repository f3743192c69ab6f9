"""Workers die, Redis forgets and dies: every job is done, and each is recorded exactly once."""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from collections.abc import Callable

import pytest
from sqlalchemy import text
from worker_fixtures import Effects, OwnRedis, Workers

JOBS = 60
KILLS = 10


def freeze_one_at_work(effects: Effects, workers: Workers) -> tuple[int, uuid.UUID]:
    """Stops a living worker that is doing an "accept" job; returns its process id and the job's id."""
    at_work: list[tuple[int, uuid.UUID]] = []

    def found() -> bool:
        living = {worker.pid for worker in workers.running}
        with effects.database.read() as session:
            rows = session.execute(text("SELECT lease_owner, id FROM jobs WHERE state = 'leased' AND kind = 'accept'"))
            owners = [(int(owner.rpartition(":")[2]), job_id) for owner, job_id in rows]
        at_work[:] = [(pid, job_id) for pid, job_id in owners if pid in living]
        return bool(at_work)

    effects.wait(found, 30)
    os.kill(at_work[0][0], signal.SIGSTOP)
    return at_work[0]


def attempts(effects: Effects, job_id: uuid.UUID) -> int:
    with effects.database.read() as session:
        return session.execute(text("SELECT attempt FROM jobs WHERE id = :id"), {"id": job_id}).scalar_one()


@pytest.mark.slow
def test_every_job_is_recorded_exactly_once_whoever_dies(
    effects: Effects, own_redis: OwnRedis, make_workers: Callable[..., Workers]
) -> None:
    own_redis.start()
    workers = make_workers(tick_seconds=0.5, poll_seconds=1.0, lease_seconds=2.0)
    chance = random.Random(20)
    jobs = [effects.add(chance.uniform(0.1, 1.0), chance.choice(["collect", "accept"])) for _ in range(JOBS)]
    workers.start(3)
    effects.wait_done(1, 60)
    frozen, frozen_job = 0, jobs[0]
    start = time.monotonic()
    for kill in range(1, KILLS + 1):
        time.sleep(chance.uniform(0.2, 1.5))
        workers.kill(chance.choice([worker for worker in workers.running if worker.pid != frozen]))
        workers.start()
        if kill == 3:
            with own_redis.client() as client:
                client.flushall()
        if kill == 4:  # it wakes long after its lease, in the middle of its work
            frozen, frozen_job = freeze_one_at_work(effects, workers)
        if kill == 5:
            own_redis.kill()
        if kill == 7:
            own_redis.start()
    effects.wait(lambda: attempts(effects, frozen_job) > 1, 30)  # another one does its job
    os.kill(frozen, signal.SIGCONT)
    effects.wait_done(JOBS, 90)
    time.sleep(1.5)  # for what the woken one might write
    with effects.database.read() as session:
        interrupted = session.execute(text("SELECT count(*) FROM jobs WHERE attempt > 1")).scalar_one()
    print(f"{JOBS} jobs, {KILLS} kills, {interrupted} jobs interrupted: {time.monotonic() - start:.1f} s")
    assert interrupted >= 3  # the kills hit work
    assert effects.states() == {"done": JOBS}
    assert effects.recorded() == dict.fromkeys(jobs, 1)
