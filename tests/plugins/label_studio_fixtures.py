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
    child = Child(server.command(venv), server.environment(postgres_server), session_folder / "label-studio.log")
    try:
        deadline = time.monotonic() + 240
        while not server.is_ready():
            if child.exit_code is not None or time.monotonic() > deadline:
                pytest.fail(f"Label Studio did not start:\n{child.last_lines(40)}")
            time.sleep(0.2)
        yield server
    finally:
        child.stop(grace_s=2)
