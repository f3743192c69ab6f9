"""The dispatcher: hints reach the queue, and a broker that is gone costs almost nothing."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from engine.adapters.celery_dispatch import TASK, CeleryDispatcher
from services.local.child import Child
from services.local.folders import make_private
from services.local.redis import RedisServer, redis_program
from services.settings import system_environment

QUEUES = {"score": "inference", "collect": "labeling"}


@pytest.fixture
def own_redis(session_folder: Path, request: pytest.FixtureRequest) -> RedisServer:
    return RedisServer(make_private(session_folder / f"d{abs(hash(request.node.name)) % 10**6}"))


def start(server: RedisServer) -> Child:
    child = Child(server.command(redis_program()), system_environment(), server.sockets / "log")
    server.wait_ready()
    return child


def dispatcher(url: str, pause_s: float = 0.0) -> CeleryDispatcher:
    return CeleryDispatcher(url, QUEUES, pause_s=pause_s)


def length(server: RedisServer, queue: str) -> int:
    with redis.Redis.from_url(server.client_url()) as client:
        return client.llen(queue)


@pytest.fixture
def closing() -> Iterator[list[CeleryDispatcher]]:
    made: list[CeleryDispatcher] = []
    yield made
    for each in made:
        each.close()


def test_a_hint_is_a_json_message_in_the_queue_of_its_kind(
    redis_url: str, redis_server: RedisServer, closing: list[CeleryDispatcher]
) -> None:
    sender = dispatcher(redis_url)
    closing.append(sender)
    sender.dispatch("collect", "the-id", 5)
    with redis.Redis.from_url(redis_server.client_url()) as client:
        message = json.loads(client.lindex("labeling", 0))
        assert client.llen("inference") == 0
    assert message["headers"]["task"] == TASK
    assert message["content-type"] == "application/json"
    assert "'collect', 'the-id'" in message["headers"]["argsrepr"]


def test_a_broker_that_is_down_or_hangs_costs_little_and_raises_nothing(
    own_redis: RedisServer, closing: list[CeleryDispatcher]
) -> None:
    sender = dispatcher(own_redis.url())
    closing.append(sender)
    sender.dispatch("score", "1", 0)  # Celery loads its parts
    assert seconds(sender, 20) < 20 * 0.05  # nothing listens
    child = start(own_redis)
    sender.dispatch("score", "2", 0)
    assert length(own_redis, "inference") == 1
    child._process.send_signal(signal.SIGSTOP)  # alive, and says nothing
    assert seconds(sender, 4) < 4 * 0.2
    child._process.send_signal(signal.SIGCONT)
    child.stop()
    assert seconds(sender, 20) < 20 * 0.05  # its connections are dead
    child = start(own_redis)
    sender.dispatch("score", "3", 0)
    assert length(own_redis, "inference") == 1  # back with the first hint
    child.stop()


def test_after_a_failure_a_burst_costs_nothing_and_then_hints_flow_again(
    own_redis: RedisServer, closing: list[CeleryDispatcher]
) -> None:
    sender = dispatcher(own_redis.url(), pause_s=1.0)
    closing.append(sender)
    sender.dispatch("score", "1", 0)
    child = start(own_redis)
    assert seconds(sender, 10_000) < 0.5
    assert length(own_redis, "inference") == 0
    deadline = time.monotonic() + 10
    while length(own_redis, "inference") == 0 and time.monotonic() < deadline:
        sender.dispatch("score", "2", 0)
        time.sleep(0.05)
    assert length(own_redis, "inference") == 1
    child.stop()


def test_an_unknown_kind_raises_nothing(redis_url: str, closing: list[CeleryDispatcher]) -> None:
    sender = dispatcher(redis_url)
    closing.append(sender)
    sender.dispatch("no such kind", "1", 0)


def seconds(sender: CeleryDispatcher, times: int) -> float:
    start = time.monotonic()
    for number in range(times):
        sender.dispatch("score", str(number), 0)
    return time.monotonic() - start
