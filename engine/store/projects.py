"""Projects: every row belongs to one."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.store.tables.access import Project
from engine.store.tables.metadata import new_id

DEFAULT = "default"


def ensure_default(session: Session) -> Project:
    """The default project, made when there is none; safe when two processes do it at once."""
    session.execute(insert(Project).values(id=new_id(), name=DEFAULT).on_conflict_do_nothing(index_elements=["name"]))
    return session.execute(select(Project).where(Project.name == DEFAULT)).scalar_one()
