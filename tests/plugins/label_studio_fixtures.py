"""A real Label Studio for the session. It takes a minute to start, so only tests marked `label_studio` ask for it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.local.child import Child
from services.local.label_studio import DATABASE, LabelStudioServer
from services.local.ports import free_port
from services.local.postgres import PostgresServer
from services.settings import Settings
from services.simulation.annotator import LabelerError
from services.simulation.sign_up import sign_up

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def label_studio(postgres_server: PostgresServer, session_folder: Path) -> Iterator[LabelStudioServer]:
    """The session's Label Studio: has `.url` and `.token`. Tests share it, so each makes projects of its own."""
    folder = session_folder / "label-studio"
    folder.mkdir()
    postgres_server.ensure_database(DATABASE, ("pg_trgm",))
    server = LabelStudioServer(
        host="127.0.0.1",
        port=free_port(),
        folder=folder,
        email="annotator@example.com",
        password=secrets.token_urlsafe(16),
        token=secrets.token_hex(20),
    )
    venv = ROOT / Settings().label_studio_venv
    log = session_folder / "label-studio.log"
    child = _started(server, venv, postgres_server, log)
    try:
        for _ in range(3):
            if _is_whole(server):
                break
            child.stop(grace_s=2)
            child = _started(server, venv, postgres_server, log)
        yield server
    finally:
        child.stop(grace_s=2)


def _started(server: LabelStudioServer, venv: Path, postgres_server: PostgresServer, log: Path) -> Child:
    child = Child(server.command(venv), server.environment(postgres_server), log)
    deadline = time.monotonic() + 240
    while not server.is_ready():
        if child.exit_code is not None or time.monotonic() > deadline:
            child.stop(grace_s=2)
            pytest.fail(f"Label Studio did not start:\n{child.last_lines(40)}")
        time.sleep(0.2)
    return child


def _is_whole(server: LabelStudioServer) -> bool:
    """Whether what should follow from a saved row does.

    Once in a while Label Studio starts without its signal handlers, as it loads while requests come in; then a new user
    has no token, and a task's counts stay as they were.
    """
    try:
        sign_up(server.url, server.token, f"probe-{secrets.token_hex(4)}@example.com", secrets.token_urlsafe(16))
    except LabelerError:
        return False
    return True
