"""Our Redis is private to us and speaks to Celery's transport and to redis-py alike."""

from __future__ import annotations

import stat

import redis
from kombu import Connection

from services.local.redis import RedisServer


def test_celerys_transport_sends_and_receives_over_the_socket(redis_url: str) -> None:
    with Connection(redis_url) as connection:
        queue = connection.SimpleQueue("hints")
        queue.put({"job": "1"})
        message = queue.get(timeout=5)
        assert message.payload == {"job": "1"}
        message.ack()
        queue.close()


def test_each_test_finds_it_empty(redis_url: str, redis_server: RedisServer) -> None:
    with redis.Redis.from_url(redis_server.client_url()) as client:
        assert client.dbsize() == 0


def test_it_is_private_and_keeps_nothing_on_disk(redis_server: RedisServer) -> None:
    assert stat.S_IMODE(redis_server.sockets.stat().st_mode) == 0o700
    with redis.Redis.from_url(redis_server.client_url(), decode_responses=True) as client:
        wanted = {"port": "0", "save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}
        assert {name: client.config_get(name)[name] for name in wanted} == wanted
