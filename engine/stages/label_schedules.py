"""Schedules of an ontology's labelling: top up the window, collect, reconcile."""

from __future__ import annotations

import uuid

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.jobs import schedules
from engine.store.tables.models import ModelLine
from engine.store.unit_of_work import UnitOfWork

PUSH_EVERY_S = 5
COLLECT_EVERY_S = 5
RECONCILE_EVERY_S = 30

RECONCILE = "reconcile"
"""The word in a collect job's payload that makes it a reconciliation."""


def ensure_label_schedules(session: Session, project_id: uuid.UUID, ontology_id: uuid.UUID) -> None:
    """Make the ontology's schedules, or bring them up to date."""
    for name, kind, every_s in (
        ("push", "push", PUSH_EVERY_S),
        ("collect", "collect", COLLECT_EVERY_S),
        (RECONCILE, "collect", RECONCILE_EVERY_S),
    ):
        schedules.ensure(
            session,
            project_id=project_id,
            name=f"{name}:{ontology_id}",
            job_kind_name=kind,
            subject_id=ontology_id,
            every_s=every_s,
            payload={RECONCILE: True} if name == RECONCILE else {},
        )


def ensure_all_label_schedules(unit: UnitOfWork) -> int:
    """The same for the ontology of every line; returns how many there are."""
    rows = unit.session.execute(select(ModelLine.project_id, ModelLine.ontology_id).distinct()).all()
    for project_id, ontology_id in rows:
        ensure_label_schedules(unit.session, project_id, ontology_id)
    return len(rows)
