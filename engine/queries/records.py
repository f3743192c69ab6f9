"""Rows as plain dicts, and pages of them by keyset."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, inspect, select
from sqlalchemy.orm import Session

from engine.domain.refusals import NotFound
from engine.store.tables.metadata import Table

HIDDEN = frozenset({"project_id", "secret_sha256"})


def record(row: Table, **more: Any) -> dict[str, Any]:
    """A row's columns by name, save for what no reader needs or may see, and what is known beside it."""
    return {key: getattr(row, key) for key in inspect(type(row)).column_attrs.keys() if key not in HIDDEN} | more  # noqa: SIM118


def page(
    session: Session,
    query: Select[*tuple[Any, ...]],
    id_column: Any,
    limit: int,
    after: uuid.UUID | None,
    newest_first: bool = False,
) -> Sequence[Any]:
    """The next rows of `query` after the one with the id `after`, by id, which is the order of their making."""
    if after is not None:
        query = query.where(id_column < after if newest_first else id_column > after)
    order = id_column.desc() if newest_first else id_column
    return session.execute(query.order_by(order).limit(limit)).all()


def one(session: Session, query: Select[*tuple[Any, ...]], what: str, row_id: uuid.UUID, where: str) -> Any:
    """The only row of `query`. Raises NotFound, which says what was looked for and where there is a list of them."""
    row = session.execute(query).one_or_none()
    if row is None:
        raise NotFound(
            f"no-such-{what.replace(' ', '-')}", f"there is no {what} {row_id}", f"list them with GET /v1/{where}"
        )
    return row


def of_project(table: Any, project_id: uuid.UUID) -> Select[*tuple[Any, ...]]:
    """All rows of a table that belong to the project."""
    return select(table).where(table.project_id == project_id)
