"""A real PostgreSQL for the session, and for each test that asks a database of its own, migrated already."""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg import sql
from sqlalchemy import Engine, create_engine

from engine.store.migrate import upgrade
from services.local.child import Child
from services.local.postgres import THROWAWAY, PostgresServer, postgres_binaries
from services.local.unprivileged import unprivileged_account
from services.settings import system_environment

TEMPLATE = "longtail_template"


@pytest.fixture(scope="session")
def session_folder() -> Iterator[Path]:
    """A short folder for the session's servers, which their user can enter: pytest's own is closed to it and long."""
    memory = Path("/dev/shm")
    # In memory where there is room: dropping hundreds of databases is then no work for a slow disk.
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 4 * 1024**3
    folder = Path(tempfile.mkdtemp(prefix="lt-", dir=memory if roomy else None))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres_server(session_folder: Path) -> Iterator[PostgresServer]:
    """The session's PostgreSQL. It starts in half a second, and its data would not survive a power cut."""
    account = unprivileged_account()
    binaries = postgres_binaries(account)
    server = PostgresServer(session_folder / "pg", session_folder / "s", account, THROWAWAY)
    server.initialise(binaries, system_environment())
    child = Child(
        server.command(binaries),
        system_environment(),
        session_folder / "postgres.log",
        account=account,
        stop_signal=signal.SIGQUIT,
        death_signal=signal.SIGQUIT,
    )
    try:
        server.wait_ready()
        yield server
    finally:
        child.stop()


@pytest.fixture(scope="session")
def template_database(postgres_server: PostgresServer) -> str:
    """Name of a database with every migration applied and no rows; don't connect to it, clone it."""
    postgres_server.ensure_database(TEMPLATE, ("vector",))
    upgrade(postgres_server.url(TEMPLATE))
    return TEMPLATE


@pytest.fixture
def database_url(
    postgres_server: PostgresServer, template_database: str, request: pytest.FixtureRequest
) -> Iterator[str]:
    """SQLAlchemy URL of a migrated, empty database that is this test's own and is dropped after it."""
    with _database(postgres_server, template_database, request.node.name) as name:
        yield postgres_server.url(name)


@pytest.fixture
def database_engine(database_url: str) -> Iterator[Engine]:
    """A SQLAlchemy engine on this test's own database."""
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def empty_database_url(postgres_server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """SQLAlchemy URL of a database without tables: for tests of the migrations themselves."""
    with _database(postgres_server, "template1", request.node.name) as name:
        yield postgres_server.url(name)


@contextmanager
def _database(server: PostgresServer, template: str, label: str) -> Iterator[str]:
    name = f"{re.sub('[^a-z0-9]+', '_', label.lower())[:40]}_{uuid.uuid4().hex[:8]}"
    with server.connect() as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
    try:
        yield name
    finally:
        # FORCE: a test that failed may have left a connection open.
        with server.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
