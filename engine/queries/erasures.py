"""Erasures with their receipts, what is left of erased clips, legal holds, and how long clips are kept."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from engine.domain.refusals import Gone
from engine.queries.records import of_project, one, page, record
from engine.store.membership import among
from engine.store.tables.labels import DatasetVersion
from engine.store.tables.models import Run
from engine.store.tables.privacy import Erasure, LegalHold, RetentionPolicy, Tombstone
from engine.store.tables.recordings import Clip, Frame


def listing(
    session: Session, project_id: uuid.UUID, limit: int, after: uuid.UUID | None = None, state: str | None = None
) -> list[dict[str, Any]]:
    """Erasures, the newest first."""
    query = of_project(Erasure, project_id)
    if state is not None:
        query = query.where(Erasure.state == state)
    return [record(row[0]) for row in page(session, query, Erasure.id, limit, after, newest_first=True)]


def detail(session: Session, project_id: uuid.UUID, erasure_id: uuid.UUID) -> dict[str, Any]:
    """One erasure with its receipt. Raises NotFound."""
    query = of_project(Erasure, project_id).where(Erasure.id == erasure_id)
    return record(one(session, query, "erasure", erasure_id, "erasures")[0])


def of_clip(session: Session, project_id: uuid.UUID, clip_id: uuid.UUID) -> dict[str, Any] | None:
    """The erasure that a clip went with, and when; none where it was not erased."""
    row = session.execute(
        select(Tombstone.erased_at, Erasure)
        .join(Erasure, Erasure.id == Tombstone.erasure_id)
        .where(Tombstone.project_id == project_id, Tombstone.object_kind == "clip", Tombstone.object_id == clip_id)
    ).one_or_none()
    return record(row[1], erased_at=row[0]) if row is not None else None


def gone(clip_id: uuid.UUID, erasure: dict[str, Any]) -> Gone:
    """What is told of a clip that was erased."""
    return Gone(
        "erased",
        f"clip {clip_id} was erased on {erasure['erased_at']:%Y-%m-%d}",
        f"GET /v1/erasures/{erasure['id']} says what was removed, and what had used it",
    )


def holds(
    session: Session, project_id: uuid.UUID, limit: int, after: uuid.UUID | None = None, standing: bool | None = None
) -> list[dict[str, Any]]:
    """Legal holds in the order of their making; with `standing`, only those that stand, or only those that don't."""
    query = of_project(LegalHold, project_id)
    if standing is not None:
        query = query.where(LegalHold.lifted_at.is_(None) if standing else LegalHold.lifted_at.is_not(None))
    return [record(row[0]) for row in page(session, query, LegalHold.id, limit, after)]


def hold(session: Session, project_id: uuid.UUID, hold_id: uuid.UUID) -> dict[str, Any]:
    """One legal hold. Raises NotFound."""
    query = of_project(LegalHold, project_id).where(LegalHold.id == hold_id)
    return record(one(session, query, "hold", hold_id, "holds")[0])


def is_held(session: Session, clip: Clip) -> bool:
    """Whether a legal hold stands on the clip, its drive or its vehicle."""
    query: Select[Any] = select(LegalHold.id).where(
        LegalHold.lifted_at.is_(None), LegalHold.scope_id.in_([clip.id, clip.drive_id, clip.vehicle_id])
    )
    return session.execute(query.limit(1)).first() is not None


def retention(session: Session, project_id: uuid.UUID) -> dict[str, Any]:
    """How long the project keeps clips at most; none is for ever."""
    row = session.execute(of_project(RetentionPolicy, project_id)).scalar_one_or_none()
    if row is None:
        return {"keep_days": None, "changed_by": None, "changed_at": None}
    return {"keep_days": row.keep_days, "changed_by": row.changed_by, "changed_at": row.changed_at}


def living_frames(session: Session, frame_ids: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Those of these frames that are there, and whose clips are not erased."""
    query = select(Frame.id).join(Clip, Clip.id == Frame.clip_id)
    return set(session.scalars(query.where(Frame.id == among(frame_ids), Clip.state != "erased")))


def runs_that_lost_rows(session: Session, run_ids: Sequence[uuid.UUID]) -> list[uuid.UUID]:
    """Those of these runs whose dataset version has lost rows to an erasure."""
    query = select(Run.id).join(DatasetVersion, DatasetVersion.id == Run.dataset_version_id)
    return list(session.scalars(query.where(Run.id == among(run_ids), DatasetVersion.erased.is_not(None))))
