"""One short transaction at a time. It rolls back unless it was committed; hints about jobs go out after the commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from engine.ports import Dispatcher
from engine.store.tables.everything import METADATA


class JobHint(NamedTuple):
    """What a dispatcher is told about a job that became due."""

    kind: str
    job_id: str
    priority: int


@dataclass
class UnitOfWork:
    """A transaction and what is to be told once it is durable. Only `commit` makes anything stay."""

    session: Session
    hints: list[JobHint] = field(default_factory=list)
    committed: bool = False

    def commit(self) -> None:
        """Make the transaction durable; raises, with nothing kept, when it can't be."""
        self.session.commit()
        self.committed = True


class Database:
    """Makes units of work, and reads. The dispatcher is told of a unit's jobs after its commit."""

    # Every table is mapped wherever there is a database: a flush follows foreign keys into tables that the process
    # itself may never have imported.
    metadata = METADATA

    def __init__(self, engine: Engine, dispatcher: Dispatcher) -> None:
        self.engine = engine
        self.dispatcher = dispatcher

    @contextmanager
    def unit(self) -> Iterator[UnitOfWork]:
        """A unit of work: ``with database.unit() as unit: …; unit.commit()``."""
        with Session(self.engine, expire_on_commit=False) as session:
            unit = UnitOfWork(session)
            yield unit
        if unit.committed:
            for hint in unit.hints:
                self.dispatcher.dispatch(hint.kind, hint.job_id, hint.priority)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session that only reads: what it changes is an error of the database's making."""
        with Session(self.engine, expire_on_commit=False) as session:
            session.connection(execution_options={"postgresql_readonly": True})
            yield session
