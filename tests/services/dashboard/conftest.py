"""Real pages on a free port, over a real database with a fleet's rows in it."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import uvicorn
from psycopg import sql
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from engine.adapters.blobs import LocalBlobStore
from engine.stages.access import make_token
from engine.store.database import connect
from engine.store.projects import ensure_default
from engine.store.unit_of_work import Database
from services.api.app import make_app
from services.local.postgres import PostgresServer
from services.settings import Settings
from services.wiring import Undispatched
from tests.services.dashboard.fleet_making import Fleet
from tests.services.dashboard.fleet_rows import build


@dataclass
class Site:
    """The running pages and ways to visit them."""

    url: str
    settings: Settings
    engine: Engine
    project_id: object
    fleet: Fleet | None = None
    clients: list[httpx.Client] = field(default_factory=list)

    def secret(self, *scopes: str, name: str = "tester") -> str:
        database = Database(self.engine, Undispatched())
        with database.unit() as unit:
            _, secret = make_token(unit, self.project_id, f"{name} {' '.join(scopes)}", scopes, None, "test")
            unit.commit()
        return secret

    def client(self) -> httpx.Client:
        client = httpx.Client(base_url=self.url, timeout=30, trust_env=False)
        self.clients.append(client)
        return client

    def visitor(self, *scopes: str) -> httpx.Client:
        """A client that has signed in with a token of these scopes; all of them where none is named."""
        client = self.client()
        answer = client.post(
            "/login", data={"token": self.secret(*(scopes or ("admin",)), name=f"v{len(self.clients)}")}
        )
        assert answer.status_code == 303, answer.text
        return client


@dataclass(frozen=True)
class FilledTemplate:
    """A database with a fleet's rows, to be cloned, and the blobs that they point to."""

    name: str
    blobs: Path
    fleet: Fleet


@pytest.fixture(scope="session")
def filled_template(
    postgres_server: PostgresServer, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> FilledTemplate:
    """Made once: its rows take seconds to put in."""
    name = "dashboard_fleet"
    _clone(postgres_server, template_database, name)
    blobs = tmp_path_factory.mktemp("fleet-blobs")
    engine = connect(postgres_server.url(name))
    with Session(engine) as session:
        fleet = build(session, LocalBlobStore(blobs))
    engine.dispose()
    return FilledTemplate(name, blobs, fleet)


@pytest.fixture
def site(database_url: str, data_dir: Path) -> Iterator[Site]:
    """The pages over an empty project."""
    with _serving(_settings(database_url, data_dir, data_dir / "blobs")) as running:
        yield running


@pytest.fixture
def full_site(filled_template: FilledTemplate, postgres_server: PostgresServer, data_dir: Path) -> Iterator[Site]:
    """The pages over a fleet's rows, of which this test has its own copy."""
    name = f"dashboard_{uuid.uuid4().hex[:12]}"
    _clone(postgres_server, filled_template.name, name)
    try:
        with _serving(_settings(postgres_server.url(name), data_dir, filled_template.blobs)) as running:
            running.fleet = filled_template.fleet
            yield running
    finally:
        with postgres_server.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _clone(server: PostgresServer, template: str, name: str) -> None:
    with server.connect() as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )


def _settings(database_url: str, data_dir: Path, blobs: Path) -> Settings:
    return Settings(
        data_dir=data_dir,
        database_url=database_url,
        blob_root=str(blobs),
        signing_secret="a secret of the tests",
        label_studio_url="http://labels.example:8080",
    )


@contextmanager
def _serving(settings: Settings) -> Iterator[Site]:
    server = uvicorn.Server(
        uvicorn.Config(make_app(settings), host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started:
        assert thread.is_alive(), "the pages did not start"
        assert time.monotonic() < deadline, "the pages took too long to start"
        time.sleep(0.01)
    assert settings.database_url
    engine = connect(settings.database_url)
    with Session(engine) as session:
        project_id = ensure_default(session).id
        session.commit()
    running = Site(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", settings, engine, project_id)
    try:
        yield running
    finally:
        for client in running.clients:
            client.close()
        server.should_exit = True
        thread.join(20)
        engine.dispose()
        assert not thread.is_alive(), "the pages did not stop"
