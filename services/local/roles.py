"""The table of what one machine runs, and how each is started. A new process is one more line here."""

from __future__ import annotations

import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from services.local.label_studio import LabelStudioServer
from services.local.postgres import PostgresServer, postgres_binaries
from services.local.redis import RedisServer, redis_program
from services.local.supervisor import Role
from services.settings import Settings, system_environment

ROOT = Path(__file__).resolve().parents[2]

POSTGRES, REDIS, LABEL_STUDIO, API = "postgres", "redis", "label-studio", "api"
QUEUES = ("inference", "labeling", "retraining", "gating")
WORKERS = tuple(f"worker-{queue}" for queue in QUEUES)
ALL_ROLES = (POSTGRES, REDIS, LABEL_STUDIO, API, *WORKERS)

# What our own processes are started with: `python -m services.cli …`.
OWN_COMMANDS: dict[str, tuple[str, ...]] = {
    API: ("api",),
    **{f"worker-{queue}": ("worker", queue) for queue in QUEUES},
}


def postgres_role(server: PostgresServer, when_ready: Callable[[], None]) -> Role:
    """SIGINT makes PostgreSQL end its sessions and write everything out; so it does when we are killed."""
    return Role(
        POSTGRES,
        server.command(postgres_binaries(server.account)),
        system_environment(),
        account=server.account,
        is_ready=server.is_ready,
        when_ready=when_ready,
        stop_signal=signal.SIGINT,
        death_signal=signal.SIGINT,
        grace_s=30.0,
    )


def redis_role(server: RedisServer) -> Role:
    return Role(REDIS, server.command(redis_program()), system_environment(), is_ready=server.is_ready)


def label_studio_role(server: LabelStudioServer, settings: Settings, postgres: PostgresServer) -> Role:
    """The first start makes its tables, which takes a minute on a small machine."""
    return Role(
        LABEL_STUDIO,
        server.command(ROOT / settings.label_studio_venv),
        server.environment(postgres),
        is_ready=server.is_ready,
        ready_timeout_s=300.0,
        grace_s=3.0,
    )


def own_role(name: str, settings: Settings) -> Role:
    """One of our own processes, with these settings as its environment."""
    return Role(
        name,
        [sys.executable, "-m", "services.cli", *OWN_COMMANDS[name]],
        settings.child_environment(),
        folder=ROOT,
        is_ready=(lambda: _answers(f"http://{settings.api_connect_host}:{settings.api_port}/healthz"))
        if name == API
        else (lambda: True),
    )


def _answers(url: str) -> bool:
    """Whether an HTTP server is there and is not failing."""
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except urllib.error.HTTPError as error:
        with error:
            return error.code < 500
    except OSError:
        return False
