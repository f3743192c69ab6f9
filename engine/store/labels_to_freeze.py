"""The labels that a freeze takes, and how many of them a line's last dataset version does not hold yet."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import ColumnElement, Select, exists, func, select, text
from sqlalchemy.orm import Session

from engine.store.tables.labels import DatasetLabel, DatasetVersion, Label
from engine.store.tables.models import ModelLine
from engine.store.tables.recordings import Clip, Subject


def freezable(line: ModelLine, split: str) -> list[ColumnElement[bool]]:
    """What a label, its subject and its clip must be, to be frozen for the line: "pool" trains, "golden" judges."""
    purpose = "training" if split == "pool" else "evaluation"
    return [
        Label.project_id == line.project_id,
        Label.ontology_id == line.ontology_id,
        Label.superseded_by_id.is_(None),
        Subject.split == split,
        Subject.kind == "frame",
        Clip.state.not_in(("erased", "offered", "requested")),
        Clip.allowed_purposes.contains([purpose]),
    ]


def last_version_id(session: Session, line_id: uuid.UUID) -> uuid.UUID | None:
    """The line's dataset version with the highest number."""
    return session.scalar(
        select(DatasetVersion.id)
        .where(DatasetVersion.line_id == line_id)
        .order_by(DatasetVersion.number.desc())
        .limit(1)
    )


def count_new(session: Session, line: ModelLine, version_id: uuid.UUID | None, sources: Sequence[str]) -> int:
    """How many labels of these sources a freeze of the pool would take that the version does not hold.

    It looks at what the version holds and not at a clock: a label that was committed while the version was being
    written, or whose transaction began long before, is in it or counts, one of the two.
    """
    with _hash_joins(session):
        return session.execute(_new(line, version_id, sources).with_only_columns(func.count())).scalar_one()


def accepted_at(
    session: Session, line: ModelLine, version_id: uuid.UUID | None, sources: Sequence[str], nth: int
) -> datetime | None:
    """When the `nth` (from 1) of those labels was accepted, oldest first; None when there are fewer."""
    query = _new(line, version_id, sources).with_only_columns(Label.created_at)
    with _hash_joins(session):
        return session.scalar(query.order_by(Label.created_at, Label.id).offset(nth - 1).limit(1))


@contextmanager
def _hash_joins(session: Session) -> Iterator[None]:
    """Right after a large import the statistics are of the time before it, and the planner would loop: minutes."""
    joins = "SELECT set_config('enable_nestloop', :on, true), set_config('enable_mergejoin', :on, true)"
    session.execute(text(joins), {"on": "off"})
    yield
    session.execute(text(joins), {"on": "on"})


def _new(line: ModelLine, version_id: uuid.UUID | None, sources: Sequence[str]) -> Select[Label]:
    query = (
        select(Label)
        .join(Subject, Subject.id == Label.subject_id)
        .join(Clip, Clip.id == Subject.clip_id)
        .where(*freezable(line, "pool"), Label.source.in_(sources))
    )
    if version_id is None:
        return query
    held = exists().where(DatasetLabel.dataset_version_id == version_id, DatasetLabel.label_id == Label.id)
    return query.where(~held)
