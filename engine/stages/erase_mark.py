"""Mark: from here on everything that an erasure is of counts as erased. It is decided in one short transaction."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Uuid, exists, func, insert, literal, select, update
from sqlalchemy.orm import Session, aliased

from engine.stages.erasure_request import Scope, ids_of
from engine.stages.retention import expired, keep_days
from engine.store import audit, erasures, holds, tombstones
from engine.store.membership import among
from engine.store.tables.labels import DatasetSubject, DatasetVersion, GoldenSet, GoldenSubject, LabelTask
from engine.store.tables.models import ModelLine, ModelVersion, Run
from engine.store.tables.privacy import ErasedTask, Erasure
from engine.store.tables.recordings import Blob, Clip, Drive, Stream, Subject, Vehicle
from engine.store.unit_of_work import UnitOfWork

MOST_CLIPS = 500
"""Expired clips that one erasure takes; the rest has to wait for the next one."""

ACTOR = "erase job"


def mark(unit: UnitOfWork, erasure: Erasure) -> bool:
    """Mark the clips erased and leave the tombstones; False, with the erasure refused, where a hold has come before.

    Whoever records about one of the clips has it done before this, and it is removed later, or finds it erased.
    """
    session = unit.session
    scope = _scope(session, erasure)
    candidates = _candidates(session, erasure, scope)
    vehicle_ids = {vehicle_id for _, vehicle_id in candidates} | ({scope.vehicle_id} if scope else set())
    holds.lock_vehicles(session, vehicle_ids)  # a clip on its way in is waited for, and one that comes later refused
    if scope is not None:
        standing = holds.on(session, ids_of(session, scope))
        if standing:
            refusal = holds.under_hold(standing)
            erasure.state, erasure.refusal = "refused", f"{refusal.detail}: {refusal.hint}"
            audit.note(session, erasure.project_id, ACTOR, "refuse", "erasure", erasure.id, {"why": refusal.detail})
            return False
    clip_ids = _take(session, erasure, scope, [clip_id for clip_id, _ in candidates])
    _bury(session, erasure, scope, clip_ids)
    erasure.state, erasure.step = "running", "removing"
    erasure.receipt = {"clips": len(clip_ids), "used_by": used_by(session, clip_ids), "removed": {}}
    session.flush()
    erasures.add_to_receipt(session, erasure.id, erasures.remove_queue(session, clip_ids))
    _list_tasks(session, erasure, clip_ids)
    return True


def _scope(session: Session, erasure: Erasure) -> Scope | None:
    """What is to be erased, as far as it is still there; none for what the retention sweep found."""
    table = {"vehicle": Vehicle, "drive": Drive, "clip": Clip}.get(erasure.scope_kind)
    row: Any = session.get(table, erasure.scope_id) if table else None
    if row is None:
        return None
    return Scope(erasure.scope_kind, row.id, row.id if isinstance(row, Vehicle) else row.vehicle_id)


def _candidates(session: Session, erasure: Erasure, scope: Scope | None) -> Sequence[tuple[uuid.UUID, uuid.UUID]]:
    """Expired clips with their vehicles, the oldest first; what a person asked for is found by its scope."""
    if erasure.scope_kind != "expired":
        return []
    days = keep_days(session, erasure.project_id)
    rows = session.execute(
        select(Clip.id, Clip.vehicle_id).where(expired(erasure.project_id, days)).order_by(Clip.id).limit(MOST_CLIPS)
    )
    return [(clip_id, vehicle_id) for clip_id, vehicle_id in rows]


def _take(session: Session, erasure: Erasure, scope: Scope | None, candidates: Sequence[uuid.UUID]) -> list[uuid.UUID]:
    """Lock the clips and mark them: whoever records about one of them holds it until its transaction ends."""
    if scope is None:  # looked at again, now that no hold can come in between
        inside = (Clip.id == among(candidates)) & expired(erasure.project_id, keep_days(session, erasure.project_id))
    else:
        column = {"vehicle": Clip.vehicle_id, "drive": Clip.drive_id, "clip": Clip.id}[scope.kind]
        inside = (column == scope.id) & (Clip.state != "erased")
    clip_ids = list(session.scalars(select(Clip.id).where(inside).order_by(Clip.id).with_for_update()))
    session.execute(update(Clip).where(Clip.id == among(clip_ids)).values(state="erased", erasure_id=erasure.id))
    return clip_ids


def _bury(session: Session, erasure: Erasure, scope: Scope | None, clip_ids: Sequence[uuid.UUID]) -> None:
    rows = session.execute(
        select(Clip.id, Clip.external_id, Vehicle.external_id)
        .join(Vehicle, Vehicle.id == Clip.vehicle_id)
        .where(Clip.id == among(clip_ids))
    )
    tombstones.add(session, erasure, "clip", [(clip_id, (vehicle, clip)) for clip_id, clip, vehicle in rows])
    # Of the recordings only those that no other clip has.
    other, elsewhere = aliased(Stream), aliased(Clip)
    shared = exists().where(other.blob_id == Blob.id, other.clip_id == elsewhere.id, elsewhere.state != "erased")
    media = session.scalars(
        select(Blob.sha256)
        .distinct()
        .join(Stream, Stream.blob_id == Blob.id)
        .where(Stream.clip_id == among(clip_ids), Blob.sha256.is_not(None), ~shared)
    )
    tombstones.add(session, erasure, "media", [(None, (str(sha256),)) for sha256 in media])
    if scope is None or scope.kind == "clip":
        return
    vehicle = session.get_one(Vehicle, scope.vehicle_id)
    drives = session.scalars(
        select(Drive).where(Drive.vehicle_id == scope.id if scope.kind == "vehicle" else Drive.id == scope.id)
    )
    stones = [(drive.id, (vehicle.external_id, drive.external_id)) for drive in drives]
    tombstones.add(session, erasure, "drive", stones)
    if scope.kind == "vehicle":
        tombstones.add(session, erasure, "vehicle", [(vehicle.id, (vehicle.external_id,))])


def _list_tasks(session: Session, erasure: Erasure, clip_ids: Sequence[uuid.UUID]) -> None:
    """Every task that the label tool may have: the rows about them are gone long before a tool that is away is back."""
    tasks = (
        select(
            literal(erasure.id, Uuid()),
            literal(erasure.project_id, Uuid()),
            LabelTask.id,
            LabelTask.ontology_id,
            LabelTask.tool_project,
        )
        .join(Subject, Subject.id == LabelTask.subject_id)
        .where(Subject.clip_id == among(clip_ids))
    )
    columns = ["erasure_id", "project_id", "task_id", "ontology_id", "tool_project"]
    session.execute(insert(ErasedTask).from_select(columns, tasks))
    listed = session.scalars(select(ErasedTask.task_id).where(ErasedTask.erasure_id == erasure.id))
    # A call to the tool that timed out may land after all of this: its task is known by its tombstone.
    tombstones.add(session, erasure, "label_task", [(None, (str(task_id),)) for task_id in listed])


def used_by(session: Session, clip_ids: Sequence[uuid.UUID]) -> Mapping[str, list[dict[str, Any]]]:
    """The dataset versions and golden sets that hold subjects of these clips, and the models that came of them."""
    datasets = session.execute(
        select(DatasetVersion.id, ModelLine.name, DatasetVersion.number, func.count())
        .join(ModelLine, ModelLine.id == DatasetVersion.line_id)
        .join(DatasetSubject, DatasetSubject.dataset_version_id == DatasetVersion.id)
        .join(Subject, Subject.id == DatasetSubject.subject_id)
        .where(Subject.clip_id == among(clip_ids))
        .group_by(DatasetVersion.id, ModelLine.name)
        .order_by(DatasetVersion.id)
    ).all()
    golden = session.execute(
        select(GoldenSet.id, GoldenSet.name, GoldenSet.version, func.count())
        .join(GoldenSubject, GoldenSubject.golden_set_id == GoldenSet.id)
        .join(Subject, Subject.id == GoldenSubject.subject_id)
        .where(Subject.clip_id == among(clip_ids))
        .group_by(GoldenSet.id)
        .order_by(GoldenSet.id)
    ).all()
    return {
        "dataset_versions": [
            {"id": str(row), "line": line, "number": number, "subjects": count} for row, line, number, count in datasets
        ],
        "golden_sets": [
            {"id": str(row), "name": name, "version": version, "subjects": count}
            for row, name, version, count in golden
        ],
        "model_versions": _models(session, [row for row, *_ in datasets]),
    }


def _models(session: Session, dataset_ids: Sequence[uuid.UUID]) -> list[dict[str, Any]]:
    """Models trained on one of these, and those whose weights started from such a model's."""
    query = (
        select(ModelVersion.id, ModelLine.name, ModelVersion.number)
        .join(ModelLine, ModelLine.id == ModelVersion.line_id)
        .join(Run, Run.id == ModelVersion.run_id)
        .order_by(ModelVersion.id)
    )
    found: dict[uuid.UUID, dict[str, Any]] = {}
    rows = session.execute(query.where(Run.dataset_version_id == among(dataset_ids))).all()
    through = "trained on it"
    while rows:
        fresh = [row for row in rows if row[0] not in found]
        for model_id, line, number in fresh:
            found[model_id] = {"id": str(model_id), "line": line, "number": number, "through": through}
        rows = session.execute(query.where(Run.initial_model_id == among([row[0] for row in fresh]))).all()
        rows = [row for row in rows if row[0] not in found]
        through = "started from one that was"
    return [found[model_id] for model_id in sorted(found)]
