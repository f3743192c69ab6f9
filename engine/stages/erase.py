"""Erase: everything of a vehicle, a drive, a clip or of expired clips is removed, and a receipt says what that was.

In steps, each of them recorded with what it removed, so that it goes on where it was whenever it dies: mark, frozen
sets, rows clip by clip, the places they belonged to, files, the label tool. What stays are tombstones and the receipt.
"""

from __future__ import annotations

import uuid

from sqlalchemy import delete, exists, func, select, update

from engine.jobs import failpoints, ledger
from engine.jobs.perform import WorkPostponed
from engine.ports import BlobStore, LabelBridge, LabelToolRefused, LabelToolUnavailable, LocalCopies
from engine.stages.erase_mark import ACTOR, mark
from engine.stages.erase_sets import clear_sets
from engine.stages.push import lock_name
from engine.store import advisory_lock, audit, erasures, label_tasks, tombstones
from engine.store.membership import among
from engine.store.tables.labels import ToolProject
from engine.store.tables.privacy import ErasedBlob, ErasedTask, Erasure, LegalHold
from engine.store.tables.recordings import Blob, Clip, Drive, MediaClaim, SplitGroup, Vehicle
from engine.store.unit_of_work import Database, UnitOfWork

SETTLED_S = 60.0
"""A file that was put less long ago may be that of a blob whose row is yet to come: it is looked at again."""
AGAIN_S = 5.0


def erase(
    database: Database,
    blobs: BlobStore,
    bridge: LabelBridge,
    copies: LocalCopies,
    lease: ledger.Lease,
    settled_s: float = SETTLED_S,
) -> str:
    """Work an erase job; returns the erasure's state: "done", or "refused" where a legal hold came before it.

    Raises WorkPostponed while the label tool is away, or while something is too fresh to be removed.
    """
    erasure_id = lease.subject_id
    with database.unit() as unit:
        ledger.guard(unit, lease)
        erasure = erasures.get(unit.session, erasure_id, lock=True)
        if erasure.state in ("done", "refused") or (erasure.state == "due" and not mark(unit, erasure)):
            ledger.complete(unit, lease)
            unit.commit()
            return erasure.state
        unit.commit()
    failpoints.hit("erase.after_mark")
    clear_sets(database, blobs, copies, lease, erasure_id)
    with database.read() as session:
        clips = erasures.clips_left(session, erasure_id)
    for clip_id in clips:
        _erase_clip(database, copies, lease, erasure_id, clip_id)
        failpoints.hit("erase.after_clip")
    with database.unit() as unit:
        ledger.guard(unit, lease)
        _erase_places(unit, erasure_id)
        unit.commit()
    failpoints.hit("erase.after_places")
    waiting = [
        _erase_files(database, blobs, lease, erasure_id, settled_s),
        _erase_tasks(database, bridge, lease, erasure_id),
    ]
    reasons = [reason for reason in waiting if reason is not None]
    if reasons:
        _note_step(database, lease, erasure_id, "; ".join(reasons))
        raise WorkPostponed("; ".join(reasons), AGAIN_S)
    failpoints.hit("erase.before_record")
    with database.unit() as unit:
        ledger.complete(unit, lease)
        _finish(unit, erasure_id)
        unit.commit()
    return "done"


def _erase_clip(
    database: Database, copies: LocalCopies, lease: ledger.Lease, erasure_id: uuid.UUID, clip_id: uuid.UUID
) -> None:
    """One clip's rows. Copies go first: afterwards nobody knows which frames there were, and no page makes new ones."""
    with database.read() as session:
        frames = erasures.frames_of(session, clip_id)
    pictures = copies.forget_frames(frames)
    with database.unit() as unit:
        session = unit.session
        ledger.guard(unit, lease)
        erasure = erasures.get(session, erasure_id, lock=True)
        removed = erasures.remove_clip(session, clip_id)
        blob_counts, hashes = erasures.remove_blobs(session, erasure, removed.blob_ids)
        for kind, number in {**blob_counts, "cached_pictures": pictures}.items():
            removed.count(kind, number)
        removed.count("media_claims", erasures.remove_claims(session, erasure.project_id, hashes))
        erasures.mask_errors(session, [*map(str, removed.ids), *hashes])
        erasures.mask_audit(session, removed.ids)
        _release_lifted(unit, removed.ids)
        erasures.add_to_receipt(session, erasure_id, removed.counts)
        unit.commit()


def _erase_places(unit: UnitOfWork, erasure_id: uuid.UUID) -> None:
    """The drives and the vehicle themselves, and split groups that nothing is left of."""
    session = unit.session
    erasure = erasures.get(session, erasure_id, lock=True)
    if erasure.scope_kind not in ("vehicle", "drive"):
        return
    column = Drive.vehicle_id if erasure.scope_kind == "vehicle" else Drive.id
    drives = session.execute(select(Drive.id, Drive.split_group_id).where(column == erasure.scope_id)).all()
    drive_ids = [drive_id for drive_id, _ in drives]
    inside = Clip.vehicle_id if erasure.scope_kind == "vehicle" else Clip.drive_id
    if session.scalar(select(exists().where(inside == erasure.scope_id))):
        raise WorkPostponed(f"another erasure is at work on this {erasure.scope_kind}", AGAIN_S)
    claims = session.execute(delete(MediaClaim).where(MediaClaim.drive_id == among(drive_ids)).returning(MediaClaim.id))
    counts = {"media_claims": len(claims.all())}
    gone = session.execute(delete(Drive).where(Drive.id == among(drive_ids)).returning(Drive.id))
    counts["drives"] = len(gone.all())
    for group in session.scalars(
        select(SplitGroup)
        .where(SplitGroup.id == among({group for _, group in drives}))
        .where(~exists().where(Drive.split_group_id == SplitGroup.id))
        .with_for_update()
    ).all():
        # Its split was decided for ever: models have been trained on one side of it.
        tombstones.add(session, erasure, "split_group", [(group.id, (group.name,))], split=group.split)
        erasures.mask_audit(session, [group.id])
        session.delete(group)
        counts["split_groups"] = counts.get("split_groups", 0) + 1
    vehicle = session.get(Vehicle, erasure.scope_id) if erasure.scope_kind == "vehicle" else None
    if vehicle is not None:
        counts["device_bindings"] = erasures.unbind_vehicle(session, erasure.project_id, vehicle.external_id)
        counts["vehicles"] = 1
        session.delete(vehicle)
    erasures.mask_audit(session, [*drive_ids, erasure.scope_id])
    _release_lifted(unit, {*drive_ids, erasure.scope_id})
    session.flush()
    erasures.add_to_receipt(session, erasure_id, counts)


def _release_lifted(unit: UnitOfWork, ids: set[uuid.UUID]) -> None:
    """Holds that were lifted stay, for who placed them and why, without the id of what they held."""
    unit.session.execute(update(LegalHold).where(LegalHold.scope_id == among(ids)).values(scope_id=None))


def _erase_files(
    database: Database, blobs: BlobStore, lease: ledger.Lease, erasure_id: uuid.UUID, settled_s: float
) -> str | None:
    """Files whose rows are gone; returns what is waited for."""
    with database.read() as session:
        listed = session.scalars(select(ErasedBlob.sha256).where(ErasedBlob.erasure_id == erasure_id)).all()
    fresh = 0
    for sha256 in listed:
        with database.read() as session:
            wanted = session.scalar(select(exists().where(Blob.sha256 == sha256)))
        # Another project may have the same bytes, or they have come in again with something else.
        if not wanted and not blobs.remove(sha256, settled_s):
            fresh += 1
            continue
        with database.unit() as unit:
            ledger.guard(unit, lease)
            unit.session.execute(
                delete(ErasedBlob).where(ErasedBlob.erasure_id == erasure_id, ErasedBlob.sha256 == sha256)
            )
            unit.commit()
        failpoints.hit("erase.after_file")
    return f"{fresh} files were put just now" if fresh else None


def _erase_tasks(database: Database, bridge: LabelBridge, lease: ledger.Lease, erasure_id: uuid.UUID) -> str | None:
    """Tasks in the label tool, annotated or not; returns what is waited for.

    Under the lock of whoever makes tasks there: what a push had under way when the clips were marked is found, too.
    """
    with database.read() as session:
        query = select(ErasedTask.ontology_id).distinct().where(ErasedTask.erasure_id == erasure_id)
        ontologies = session.scalars(query).all()
    for ontology_id in ontologies:
        with advisory_lock.held(database.engine, lock_name(ontology_id)) as ours:
            if not ours:
                return "another worker is at the ontology's tasks"
            try:
                _erase_tasks_of(database, bridge, lease, erasure_id, ontology_id)
            except LabelToolUnavailable as away:
                return str(away)
        failpoints.hit("erase.after_tool")
    return None


def _erase_tasks_of(
    database: Database, bridge: LabelBridge, lease: ledger.Lease, erasure_id: uuid.UUID, ontology_id: uuid.UUID
) -> None:
    with database.read() as session:
        project: ToolProject | None = label_tasks.tool_project(session, ontology_id)
        listed = session.scalars(
            select(ErasedTask).where(ErasedTask.erasure_id == erasure_id, ErasedTask.ontology_id == ontology_id)
        ).all()
    now = project.tool_project if project else None
    keys = [str(task.task_id) for task in listed]
    found: set[int] = set()
    seen: set[uuid.UUID] = set()
    for number in {now, *(task.tool_project for task in listed)} - {None}:
        assert number is not None
        try:
            there = bridge.tasks_by_key(number, keys)
        except LabelToolRefused:
            if number == now:
                raise
            continue  # an earlier project, which is gone, and its tasks with it
        found |= {tool.id for tools in there.values() for tool in tools}
        seen |= {uuid.UUID(key) for key in there}
    of_ontology = (ErasedTask.erasure_id == erasure_id) & (ErasedTask.ontology_id == ontology_id)
    with database.unit() as unit:  # first, so that they count even where this dies in between
        ledger.guard(unit, lease)
        unit.session.execute(update(ErasedTask).where(of_ontology, ErasedTask.task_id == among(seen)).values(seen=True))
        unit.commit()
    # Only what was found by its key: numbers of an earlier tool could be those of others here.
    bridge.delete_tasks(sorted(found))
    failpoints.hit("erase.after_delete")
    with database.unit() as unit:
        ledger.guard(unit, lease)
        gone = unit.session.scalars(delete(ErasedTask).where(of_ontology).returning(ErasedTask.seen)).all()
        erasures.add_to_receipt(unit.session, erasure_id, {"tool_tasks": sum(gone)})
        unit.commit()


def _note_step(database: Database, lease: ledger.Lease, erasure_id: uuid.UUID, step: str) -> None:
    with database.unit() as unit:
        ledger.guard(unit, lease)
        unit.session.execute(update(Erasure).where(Erasure.id == erasure_id).values(step=f"waiting: {step}"))
        unit.commit()


def _finish(unit: UnitOfWork, erasure_id: uuid.UUID) -> None:
    session = unit.session
    erasure = erasures.get(session, erasure_id, lock=True)
    erasure.state, erasure.step = "done", None
    erasure.completed_at = session.execute(select(func.clock_timestamp())).scalar_one()
    receipt = erasure.receipt or {}
    audit.note(
        session, erasure.project_id, ACTOR, "erase", "erasure", erasure.id,
        {"of": erasure.scope_kind, "by": erasure.requested_by, "clips": receipt.get("clips", 0)},
    )  # fmt: skip
    if erasure.scope_kind == "expired" and receipt.get("clips"):
        ledger.enqueue(
            unit,
            kind="expire",
            project_id=erasure.project_id,
            subject_id=erasure.project_id,
            dedupe_key=f"expire:after:{erasure.id}",
        )
    session.flush()
