"""Annotations as received: each revision a row, and a deletion a time."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from engine.store.tables.labels import Annotation
from engine.store.tables.metadata import new_id


def latest(session: Session, project_id: uuid.UUID, tool_annotations: Collection[int]) -> dict[int, Annotation]:
    """The newest revision of each of these annotations of the label tool, by the tool's id."""
    rows = session.scalars(
        select(Annotation)
        .where(Annotation.project_id == project_id, Annotation.tool_annotation.in_(tool_annotations))
        .ext(distinct_on(Annotation.tool_annotation))
        .order_by(Annotation.tool_annotation, Annotation.revision.desc())
    )
    return {row.tool_annotation: row for row in rows}


def standing(session: Session, task_ids: Collection[uuid.UUID]) -> list[Annotation]:
    """The newest revision of each annotation of these tasks that was not deleted, oldest annotation first."""
    rows = session.scalars(
        select(Annotation)
        .where(Annotation.task_id.in_(task_ids))
        .ext(distinct_on(Annotation.tool_annotation))
        .order_by(Annotation.tool_annotation, Annotation.revision.desc())
    ).all()
    return [row for row in rows if row.deleted_at is None]


def add(session: Session, earlier: Annotation | None, **columns: Any) -> Annotation:
    """The next revision of an annotation."""
    row = Annotation(id=new_id(), revision=earlier.revision + 1 if earlier else 1, **columns)
    session.add(row)
    session.flush()
    return row


def restore(session: Session, annotation: Annotation) -> None:
    """Take back that it was deleted."""
    _mark(session, annotation, None)


def delete(session: Session, annotations: Sequence[Annotation]) -> None:
    """Note that the label tool no longer has these annotations, in none of their revisions."""
    for annotation in annotations:
        _mark(session, annotation, func.clock_timestamp())


def _mark(session: Session, annotation: Annotation, at: Any) -> None:
    session.execute(
        update(Annotation)
        .where(
            Annotation.project_id == annotation.project_id,
            Annotation.tool_annotation == annotation.tool_annotation,
            Annotation.task_id == annotation.task_id,
        )
        .values(deleted_at=at)
    )
