"""Hold: what a court or an inquiry needs stays, against retention and erasure, until the hold is lifted."""

from __future__ import annotations

import uuid

from sqlalchemy import func, select

from engine.domain.erasure import Target
from engine.domain.refusals import Conflict, Gone, NotFound
from engine.stages.erasure_request import erased_before, find_scope
from engine.store import audit, tombstones
from engine.store.holds import lock_vehicles
from engine.store.tables.metadata import new_id
from engine.store.tables.privacy import Erasure, LegalHold
from engine.store.unit_of_work import UnitOfWork


def place_hold(unit: UnitOfWork, project_id: uuid.UUID, target: Target, reason: str, actor: str) -> LegalHold:
    """Hold a vehicle, a drive or a clip, and all that belongs to it, now and later.

    Several holds may stand on the same thing, each for a reason of its own. Raises NotFound, Invalid; Gone when an
    erasure has begun.
    """
    session = unit.session
    gone = erased_before(session, project_id, target)
    if gone is None:
        scope = find_scope(session, project_id, target)
        lock_vehicles(session, [scope.vehicle_id])
        stone = tombstones.of_object(session, project_id, scope.kind, scope.id)
        gone = session.get(Erasure, stone.erasure_id) if stone is not None else None
    if gone is not None:
        raise Gone(
            "erased",
            f"the {target.kind} was erased, or is being erased (erasure {gone.id})",
            f"it is too late for a hold: GET /v1/erasures/{gone.id} says what went",
        )
    hold = LegalHold(
        id=new_id(),
        project_id=project_id,
        scope_kind=scope.kind,
        scope_id=scope.id,
        reason=reason,
        placed_by=actor,
    )
    session.add(hold)
    session.flush()
    session.refresh(hold)
    audit.note(session, project_id, actor, "hold", "legal_hold", hold.id, {"on": scope.kind, "why": reason})
    return hold


def lift_hold(unit: UnitOfWork, project_id: uuid.UUID, hold_id: uuid.UUID, reason: str, actor: str) -> LegalHold:
    """End a hold. What else holds the same thing stays. Raises NotFound, Conflict when it was lifted before."""
    hold = unit.session.execute(
        select(LegalHold).where(LegalHold.project_id == project_id, LegalHold.id == hold_id).with_for_update()
    ).scalar_one_or_none()
    if hold is None:
        raise NotFound("no-such-hold", f"there is no legal hold {hold_id}", "list them with GET /v1/holds")
    if hold.lifted_at is not None:
        raise Conflict(
            "hold-lifted",
            f"hold {hold_id} was lifted on {hold.lifted_at:%Y-%m-%d} by {hold.lifted_by}",
            "there is nothing to do",
        )
    hold.lifted_at = unit.session.execute(select(func.clock_timestamp())).scalar_one()
    hold.lifted_by, hold.lift_reason = actor, reason
    audit.note(unit.session, project_id, actor, "lift hold", "legal_hold", hold.id, {"why": reason})
    unit.session.flush()
    return hold
