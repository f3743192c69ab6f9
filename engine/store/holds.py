"""Legal holds that stand: what they hold is neither erased nor expires."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, exists, select
from sqlalchemy.orm import Session

from engine.domain.refusals import Conflict
from engine.store.membership import among
from engine.store.tables.privacy import LegalHold
from engine.store.tables.recordings import Clip, Vehicle


def held() -> ColumnElement[bool]:
    """Whether a clip is held: by itself, or by its drive or vehicle."""
    return exists().where(
        LegalHold.lifted_at.is_(None), LegalHold.scope_id.in_([Clip.id, Clip.drive_id, Clip.vehicle_id])
    )


def on(session: Session, ids: Iterable[uuid.UUID]) -> Sequence[LegalHold]:
    """The holds that stand on any of these vehicles, drives and clips, the oldest first."""
    return session.scalars(
        select(LegalHold).where(LegalHold.lifted_at.is_(None), LegalHold.scope_id == among(ids)).order_by(LegalHold.id)
    ).all()


def lock_vehicles(session: Session, vehicle_ids: Iterable[uuid.UUID]) -> set[uuid.UUID]:
    """Hold these vehicles until the transaction ends, in one order: holds, erasures and new clips wait for each other.

    Returns those that are there.
    """
    query = select(Vehicle.id).where(Vehicle.id == among(vehicle_ids)).order_by(Vehicle.id).with_for_update()
    return set(session.scalars(query))


def under_hold(held_by: Sequence[LegalHold]) -> Conflict:
    """Why nothing is erased."""
    first = held_by[0]
    more = f" and {len(held_by) - 1} more" if held_by[1:] else ""
    return Conflict(
        "legal-hold",
        f"a legal hold on the {first.scope_kind} stands since {first.placed_at:%Y-%m-%d}, placed by {first.placed_by}: "
        f"{first.reason}{more}",
        f"nothing under a hold is erased: lift it first, if you may (`longtail holds lift {first.id}`)",
    )
