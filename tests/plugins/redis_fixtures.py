"""A real Redis for the session, empty for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from services.local.child import Child
from services.local.folders import make_private
from services.local.redis import RedisServer, redis_program
from services.settings import system_environment


@pytest.fixture(scope="session")
def redis_server(session_folder: Path) -> Iterator[RedisServer]:
    """The session's Redis."""
    server = RedisServer(make_private(session_folder / "r"))
    child = Child(server.command(redis_program()), system_environment(), session_folder / "redis.log")
    try:
        server.wait_ready()
        yield server
    finally:
        child.stop()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """Broker URL for Celery of an empty Redis."""
    with redis.Redis.from_url(redis_server.client_url()) as client:
        client.flushall()
    return redis_server.url()
