"""Real worker processes: what wakes them, how they stop, what they do without Redis."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest
from worker_fixtures import Effects, OwnRedis, Workers

from services.local.child import Child
from services.settings import Settings
from services.workers.app import EXIT_STALLED, run_worker

pytestmark = pytest.mark.slow


def exit_code(worker: Child, timeout_s: float) -> int:
    deadline = time.monotonic() + timeout_s
    while worker.exit_code is None:
        assert time.monotonic() < deadline, worker.last_lines()
        time.sleep(0.05)
    return worker.exit_code


def test_a_message_wakes_the_worker_long_before_its_poll(
    effects: Effects, own_redis: OwnRedis, make_workers: Callable[..., Workers]
) -> None:
    own_redis.start()
    worker = make_workers(poll_seconds=3600, tick_seconds=3600).start()
    with own_redis.client() as client:
        effects.add()
        effects.wait(lambda: effects.states()["done"] == 1 and client.llen("labeling") == 0, 60)
        effects.add()
        assert effects.wait_done(2, 60) < 3
        client.flushall()  # the queue's keys and bindings are gone
        effects.add()
        assert effects.wait_done(3, 60) < 3
    worker.request_stop()
    assert exit_code(worker, 20) == 0


def test_work_goes_on_while_redis_is_down_and_wakes_again_when_it_is_back(
    effects: Effects, own_redis: OwnRedis, make_workers: Callable[..., Workers]
) -> None:
    make_workers(poll_seconds=0.5).start()  # Redis has never been there yet
    effects.add()
    effects.wait_done(1, 60)
    own_redis.start()
    effects.add()
    assert effects.wait_done(2, 15) < 15
    own_redis.kill()
    effects.add()
    assert effects.wait_done(3, 15) < 15


def test_messages_alone_move_work_again_soon_after_every_outage_of_redis(
    effects: Effects, own_redis: OwnRedis, make_workers: Callable[..., Workers]
) -> None:
    own_redis.start()
    make_workers(poll_seconds=3600, tick_seconds=0.5).start()
    effects.add()
    effects.wait_done(1, 60)
    for away_s in (0.0, 0.1, 0.5, 3.0):  # at a short one an acknowledgement may fail: that once stalled Celery for good
        own_redis.kill()
        time.sleep(away_s)
        own_redis.start()
        done = effects.states()["done"]
        effects.wait(lambda: effects.add() and effects.states()["done"] > done, 15)  # noqa: B023


def test_a_stopped_worker_gives_its_job_back_unharmed(
    effects: Effects, own_redis: OwnRedis, make_workers: Callable[..., Workers]
) -> None:
    own_redis.start()
    worker = make_workers().start()
    effects.add(seconds=120)
    effects.wait(lambda: effects.states()["leased"] == 1, 60)
    worker.request_stop()
    assert exit_code(worker, 12) == 0
    assert effects.states() == {"due": 1}
    assert not effects.recorded()


def test_a_short_job_under_way_is_finished_before_the_worker_stops(
    effects: Effects, own_redis: OwnRedis, make_workers: Callable[..., Workers]
) -> None:
    own_redis.start()
    worker = make_workers().start()
    job_id = effects.add(seconds=2)
    effects.wait(lambda: effects.states()["leased"] == 1, 60)
    worker.request_stop()
    assert exit_code(worker, 12) == 0
    assert effects.recorded() == {job_id: 1}


@pytest.mark.parametrize("point", ["effects.before_commit", "effects.after_commit"])
def test_a_worker_that_dies_at_its_record_leaves_one(
    effects: Effects, own_redis: OwnRedis, make_workers: Callable[..., Workers], point: str
) -> None:
    own_redis.start()
    timing = {"tick_seconds": 0.5, "poll_seconds": 0.5, "lease_seconds": 2.0}
    job_id = effects.add()
    dying = make_workers(failpoints=f"{point}=kill", **timing).start()
    assert exit_code(dying, 60) == -signal.SIGKILL
    assert effects.states() == ({"leased": 1} if point == "effects.before_commit" else {"done": 1})
    make_workers(**timing).start()
    effects.wait_done(1, 60)
    assert effects.recorded() == {job_id: 1}


def test_handlers_of_another_queue_are_refused(database_url: str, redis_url: str) -> None:
    settings = Settings(database_url=database_url, redis_url=redis_url)
    with pytest.raises(ValueError, match="not kinds of the queue 'labeling': score"):
        run_worker("labeling", settings, {"score": lambda lease: None})
    assert EXIT_STALLED not in (0, 1, 2)
