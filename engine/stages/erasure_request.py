"""Ask for an erasure: a vehicle, a drive or a clip is to be erased. The same request again is the same erasure."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.domain.erasure import Target
from engine.domain.refusals import Invalid, NotFound
from engine.jobs import ledger
from engine.store import audit, holds, tombstones
from engine.store.tables.metadata import new_id
from engine.store.tables.privacy import Erasure
from engine.store.tables.recordings import Clip, Drive, Vehicle
from engine.store.tables.work import Job
from engine.store.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class Scope:
    """What a target was found to be."""

    kind: str
    id: uuid.UUID
    vehicle_id: uuid.UUID


def request_erasure(
    unit: UnitOfWork, project_id: uuid.UUID, target: Target, reason: str | None, actor: str
) -> tuple[Erasure, bool]:
    """Make an erasure due. Returns it, and whether it is new: one under way, or one that was done, is not.

    One whose job has died goes on.

    Raises NotFound, Invalid, Conflict when it is under a legal hold.
    """
    session = unit.session
    done = erased_before(session, project_id, target)
    if done is not None:
        _revive(unit, done)
        return done, False
    scope = find_scope(session, project_id, target)
    holds.lock_vehicles(session, [scope.vehicle_id])  # two requests at once, or a hold: one after the other
    standing = holds.on(session, ids_of(session, scope))
    if standing:
        raise holds.under_hold(standing)
    live = session.execute(
        select(Erasure).where(
            Erasure.scope_kind == scope.kind, Erasure.scope_id == scope.id, Erasure.state.in_(("due", "running"))
        )
    ).scalar_one_or_none()
    if live is not None:
        _revive(unit, live)
        return live, False
    erasure = make_erasure(unit, project_id, scope.kind, scope.id, reason, actor)
    audit.note(session, project_id, actor, "ask for erasure", "erasure", erasure.id, {"of": scope.kind, "why": reason})
    return erasure, True


def _revive(unit: UnitOfWork, erasure: Erasure) -> None:
    dead = select(Job.id).where(Job.kind == "erase", Job.subject_id == erasure.id, Job.state == "dead")
    for job_id in unit.session.scalars(dead).all():
        ledger.retry_dead(unit, job_id)


def make_erasure(
    unit: UnitOfWork, project_id: uuid.UUID, kind: str, scope_id: uuid.UUID, reason: str | None, actor: str
) -> Erasure:
    """The row of an erasure, and its job."""
    erasure = Erasure(
        id=new_id(),
        project_id=project_id,
        scope_kind=kind,
        scope_id=scope_id,
        state="due",
        reason=reason,
        requested_by=actor,
    )
    unit.session.add(erasure)
    unit.session.flush()
    unit.session.refresh(erasure)
    ledger.enqueue(unit, kind="erase", project_id=project_id, subject_id=erasure.id, dedupe_key=f"erase:{erasure.id}")
    return erasure


def erased_before(session: Session, project_id: uuid.UUID, target: Target) -> Erasure | None:
    """The erasure that the target went with. One that is only under way counts, too."""
    if target.kind == "clip":
        assert target.clip is not None
        stone = tombstones.of_object(session, project_id, "clip", target.clip)
    elif target.kind == "vehicle":
        stone = tombstones.find(session, project_id, "vehicle", str(target.vehicle))
    elif target.vehicle is not None:
        stone = tombstones.find(session, project_id, "drive", target.vehicle, str(target.drive))
    else:
        return None
    return session.get(Erasure, stone.erasure_id) if stone is not None else None


def find_scope(session: Session, project_id: uuid.UUID, target: Target) -> Scope:
    """The vehicle, drive or clip that is meant. Raises NotFound, Invalid."""
    kind = target.kind
    if kind == "clip":
        clip = session.execute(
            select(Clip).where(Clip.project_id == project_id, Clip.id == target.clip)
        ).scalar_one_or_none()
        if clip is None:
            raise NotFound("no-such-clip", f"there is no clip {target.clip}", "list the clips with GET /v1/clips")
        return Scope(kind, clip.id, clip.vehicle_id)
    if kind == "vehicle":
        vehicle = session.execute(
            select(Vehicle).where(Vehicle.project_id == project_id, Vehicle.external_id == target.vehicle)
        ).scalar_one_or_none()
        if vehicle is None:
            raise NotFound(
                "no-such-vehicle", f"there is no vehicle {target.vehicle!r}", "vehicles are named in GET /v1/clips"
            )
        return Scope(kind, vehicle.id, vehicle.id)
    query = select(Drive).where(Drive.project_id == project_id, Drive.external_id == target.drive)
    if target.vehicle is not None:
        query = query.join(Vehicle, Vehicle.id == Drive.vehicle_id).where(Vehicle.external_id == target.vehicle)
    drives = session.scalars(query.limit(2)).all()
    if not drives:
        raise NotFound("no-such-drive", f"there is no drive {target.drive!r}", "drives are named in GET /v1/clips")
    if drives[1:]:
        raise Invalid("drive-ambiguous", f"several vehicles have a drive {target.drive!r}", "name the vehicle as well")
    return Scope(kind, drives[0].id, drives[0].vehicle_id)


def ids_of(session: Session, scope: Scope) -> set[uuid.UUID]:
    """All ids that a hold on it may have: its own, those above it, and those of the drives and clips in it."""
    inside = {
        "vehicle": Clip.vehicle_id == scope.id,
        "drive": Clip.drive_id == scope.id,
        "clip": Clip.id == scope.id,
    }[scope.kind]
    ids = {scope.id, scope.vehicle_id}
    for clip_id, drive_id in session.execute(select(Clip.id, Clip.drive_id).where(inside)):
        ids |= {clip_id, drive_id}
    if scope.kind == "vehicle":
        ids.update(session.scalars(select(Drive.id).where(Drive.vehicle_id == scope.id)))
    return ids
