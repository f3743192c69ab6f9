"""A database with a project, and a dispatcher that keeps the hints it was told."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from engine.store.database import connect
from engine.store.projects import ensure_default
from engine.store.unit_of_work import Database


@dataclass
class KeptHints:
    """Every hint, in order."""

    hints: list[tuple[str, str, int]] = field(default_factory=list)

    def dispatch(self, job_kind: str, job_id: str, priority: int) -> None:
        self.hints.append((job_kind, job_id, priority))


@pytest.fixture
def hints() -> KeptHints:
    return KeptHints()


@pytest.fixture
def database(database_url: str, hints: KeptHints) -> Iterator[Database]:
    engine = connect(database_url, pool_size=10)
    yield Database(engine, hints)
    engine.dispose()


@pytest.fixture
def project_id(database: Database) -> uuid.UUID:
    with database.unit() as unit:
        project = ensure_default(unit.session)
        unit.commit()
    return project.id
