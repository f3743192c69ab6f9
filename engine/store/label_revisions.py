"""Labels by revision: the newest one of a subject's head under an ontology version counts, the earlier ones stay."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from engine.store.tables.labels import Label
from engine.store.tables.metadata import new_id
from engine.store.tables.recordings import Subject


def lock_subjects(session: Session, subject_ids: Collection[uuid.UUID]) -> None:
    """Hold these subjects until the transaction ends, always in one order: one at a time revises their labels."""
    session.execute(
        select(Subject.id).where(Subject.id.in_(subject_ids)).order_by(Subject.id).with_for_update(key_share=True)
    ).all()


def revisions(
    session: Session, ontology_id: uuid.UUID, subject_ids: Collection[uuid.UUID]
) -> dict[tuple[uuid.UUID, str], list[Label]]:
    """All labels of these subjects by (subject, head), oldest revision first."""
    found: dict[tuple[uuid.UUID, str], list[Label]] = defaultdict(list)
    for label in session.scalars(
        select(Label)
        .where(Label.ontology_id == ontology_id, Label.subject_id.in_(subject_ids))
        .order_by(Label.revision)
    ):
        found[label.subject_id, label.head].append(label)
    return found


def revise(session: Session, earlier: Sequence[Label], **columns: Any) -> Label:
    """Add a label that supersedes the current one of `earlier`: all revisions of its subject (locked) and head."""
    label = Label(id=new_id(), revision=earlier[-1].revision + 1 if earlier else 1, **columns)
    # The old one first: at no time are there two current ones. Its reference to the new one is checked at the commit.
    session.execute(
        update(Label)
        .where(Label.id.in_([old.id for old in earlier]), Label.superseded_by_id.is_(None))
        .values(superseded_by_id=label.id)
    )
    session.add(label)
    session.flush()
    return label


def withdraw(session: Session, label: Label) -> None:
    """End a label that nobody stands by any more, without a successor: one that supersedes itself was withdrawn."""
    session.execute(
        update(Label).where(Label.id == label.id, Label.superseded_by_id.is_(None)).values(superseded_by_id=label.id)
    )
