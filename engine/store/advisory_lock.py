"""Locks that outlast a transaction and end with their holder: for work on something outside of the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError


@contextmanager
def held(engine: Engine, name: str) -> Iterator[bool]:
    """Whether we alone hold the lock of this name now; it is let go at the end, or when the process dies.

    It takes a connection of its own, on which no transaction is open.
    """
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    key = {"name": name}
    try:
        got = bool(
            connection.execute(text("SELECT pg_try_advisory_lock(hashtextextended(:name, 0))"), key).scalar_one()
        )
        try:
            yield got
        finally:
            if got:
                try:
                    connection.execute(text("SELECT pg_advisory_unlock(hashtextextended(:name, 0))"), key)
                except SQLAlchemyError:
                    connection.invalidate()  # never back into the pool with the lock on it
    finally:
        connection.close()
