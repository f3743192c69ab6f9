"""Removing rows for good: everything that a clip has, and whatever else still names it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Table, and_, delete, exists, func, or_, select, update
from sqlalchemy.dialects.postgresql import array, insert
from sqlalchemy.orm import Session

from engine.store.membership import among
from engine.store.tables.access import AuditEntry, DeviceKeyVehicle, IdempotencyKey
from engine.store.tables.everything import METADATA
from engine.store.tables.labels import (
    Annotation,
    DatasetLabel,
    DatasetSubject,
    GoldenSubject,
    Label,
    LabelTask,
    QueueItem,
)
from engine.store.tables.models import Embedding, Run, Score, Scoring
from engine.store.tables.privacy import ErasedBlob, Erasure
from engine.store.tables.recordings import Blob, Calibration, Clip, Frame, MediaClaim, ShownPicture, Stream, Subject
from engine.store.tables.work import Job

ERASED = "erased"


@dataclass
class Removed:
    """What was removed, in rows by kind, and the ids that nothing may name any more."""

    counts: dict[str, int] = field(default_factory=dict)
    ids: set[uuid.UUID] = field(default_factory=set)
    blob_ids: set[uuid.UUID] = field(default_factory=set)

    def count(self, kind: str, number: int) -> None:
        if number:
            self.counts[kind] = self.counts.get(kind, 0) + number


def get(session: Session, erasure_id: uuid.UUID, lock: bool = False) -> Erasure:
    """The erasure; `lock` holds its row until the transaction ends."""
    return session.get_one(Erasure, erasure_id, with_for_update=lock, populate_existing=lock)


def add_to_receipt(session: Session, erasure_id: uuid.UUID, counts: Mapping[str, int]) -> Erasure:
    """Add to the receipt's counts of what was removed, in the transaction that removes it."""
    erasure = get(session, erasure_id, lock=True)
    receipt = dict(erasure.receipt or {})
    removed = dict(receipt.get("removed", {}))
    for kind, number in counts.items():
        if number:
            removed[kind] = removed.get(kind, 0) + number
    erasure.receipt = {**receipt, "removed": dict(sorted(removed.items()))}
    session.flush()
    return erasure


def clips_left(session: Session, erasure_id: uuid.UUID) -> list[uuid.UUID]:
    """The erasure's clips whose rows are still there."""
    return list(session.scalars(select(Clip.id).where(Clip.erasure_id == erasure_id).order_by(Clip.id)))


def frames_of(session: Session, clip_id: uuid.UUID) -> list[uuid.UUID]:
    return list(session.scalars(select(Frame.id).where(Frame.clip_id == clip_id)))


def remove_queue(session: Session, clip_ids: Sequence[uuid.UUID]) -> dict[str, int]:
    """Take the clips' subjects out of the queue and cancel their live tasks, so that nothing of them is asked again."""
    subjects = select(Subject.id).where(Subject.clip_id == among(clip_ids))
    # First the items, as everybody does: a push that holds one is waited for, and its new tasks are seen then.
    items = session.scalars(delete(QueueItem).where(QueueItem.subject_id.in_(subjects)).returning(QueueItem.id)).all()
    session.execute(
        update(LabelTask)
        .where(LabelTask.subject_id.in_(subjects), LabelTask.state.in_(("intended", "open")))
        .values(state="cancelled", done_at=func.clock_timestamp())
    )
    jobs = remove_jobs(session, [], items)
    mask_audit(session, items)
    return {"queue_items": len(items), "jobs": jobs}


def remove_clip(session: Session, clip_id: uuid.UUID) -> Removed:
    """Remove the clip's row and every row under it. Its frames' pictures in caches go before, its blobs after."""
    done = Removed(ids={clip_id})
    subjects = set(session.scalars(select(Subject.id).where(Subject.clip_id == clip_id)))
    frames = set(frames_of(session, clip_id))
    tasks = set(session.scalars(select(LabelTask.id).where(LabelTask.subject_id == among(subjects))))
    labels = set(session.scalars(select(Label.id).where(Label.subject_id == among(subjects))))

    def drop(kind: str, table: type[Any], where: Any, *blobs: Any, identity: Any = None) -> None:
        returned = [identity if identity is not None else table.project_id, *blobs]
        rows = session.execute(delete(table).where(where).returning(*returned)).all()
        done.count(kind, len(rows))
        for row in rows:
            if identity is not None:
                done.ids.add(row[0])
            done.blob_ids.update(blob for blob in row[1:] if blob is not None)

    drop("shown_pictures", ShownPicture, ShownPicture.frame_id == among(frames), ShownPicture.blob_id)
    drop("scores", Score, Score.subject_id == among(subjects))
    drop("embeddings", Embedding, Embedding.subject_id == among(subjects))
    drop("predictions", Scoring, Scoring.clip_id == clip_id, Scoring.predictions_blob_id, identity=Scoring.id)
    drop("queue_items", QueueItem, QueueItem.subject_id == among(subjects), identity=QueueItem.id)
    drop("annotations", Annotation, Annotation.task_id == among(tasks), identity=Annotation.id)
    drop("label_tasks", LabelTask, LabelTask.id == among(tasks), identity=LabelTask.id)
    session.execute(delete(DatasetLabel).where(DatasetLabel.label_id == among(labels)))
    session.execute(delete(DatasetSubject).where(DatasetSubject.subject_id == among(subjects)))
    session.execute(delete(GoldenSubject).where(GoldenSubject.subject_id == among(subjects)))
    drop("labels", Label, Label.id == among(labels), Label.array_blob_id, identity=Label.id)
    drop("subjects", Subject, Subject.id == among(subjects), identity=Subject.id)
    drop("frames", Frame, Frame.id == among(frames), Frame.picture_blob_id, identity=Frame.id)
    calibrations = set(session.scalars(select(Stream.calibration_id).where(Stream.clip_id == clip_id)))
    drop("streams", Stream, Stream.clip_id == clip_id, Stream.blob_id, identity=Stream.id)
    used = exists().where(Stream.calibration_id == Calibration.id)
    unused = and_(Calibration.id == among(filter(None, calibrations)), ~used)
    drop("calibrations", Calibration, unused, identity=Calibration.id)
    drop("clips", Clip, Clip.id == clip_id)
    done.count("jobs", remove_jobs(session, [clip_id, *tasks], []))
    done.count("kept_answers", _remove_answers(session, [clip_id], labels))
    return done


def remove_jobs(session: Session, subject_ids: Sequence[uuid.UUID], item_ids: Sequence[uuid.UUID]) -> int:
    """Remove jobs about these clips and tasks, and pushes that name these items. Whoever does one loses its lease."""
    about = delete(Job).where(Job.kind.in_(("score", "accept")), Job.subject_id == among(subject_ids))
    gone = len(session.execute(about.returning(Job.id)).all())
    if item_ids:
        item = func.split_part(Job.dedupe_key, ":", 4)
        naming = delete(Job).where(
            Job.kind == "push",
            Job.dedupe_key.like("push:%:without:%"),
            item.in_([str(each) for each in item_ids]),
        )
        gone += len(session.execute(naming.returning(Job.id)).all())
    return gone


def _remove_answers(session: Session, clip_ids: Sequence[uuid.UUID], label_ids: Iterable[uuid.UUID]) -> int:
    """Remove the kept answers to requests that told of these clips or labels."""
    labels = [str(each) for each in label_ids]
    told = IdempotencyKey.body["clip_id"].astext.in_([str(each) for each in clip_ids])
    if labels:
        # Spelt as the index is.
        told = or_(told, IdempotencyKey.body.op("->")("label_ids").op("?|")(array(labels)))
    return len(session.execute(delete(IdempotencyKey).where(told).returning(IdempotencyKey.id)).all())


# --- blobs ----------------------------------------------------------------------------------------------------------


def blob_pointers() -> list[tuple[Table, Any]]:
    """Every column that may point to a blob, whichever table has it."""
    target = METADATA.tables["blobs"].c.id
    return [
        (table, column)
        for table in METADATA.sorted_tables
        for column in table.columns
        if any(key.column is target for key in column.foreign_keys)
    ]


def remove_blobs(session: Session, erasure: Erasure, blob_ids: Iterable[uuid.UUID]) -> tuple[dict[str, int], list[str]]:
    """Remove the rows of those of these blobs that nothing points to any more, and note that their files are to go.

    Whoever is about to point to one of them waits for this transaction, and fails. What something else still refers to
    stays. Returns counts for the receipt, and the hashes of what went.
    """
    ids = list(blob_ids)
    session.execute(select(Blob.id).where(Blob.id == among(ids)).order_by(Blob.id).with_for_update())
    pointed = [exists(select(1).select_from(table).where(column == Blob.id)) for table, column in blob_pointers()]
    gone = session.execute(
        delete(Blob).where(Blob.id == among(ids), ~or_(*pointed)).returning(Blob.sha256, Blob.size_bytes, Blob.storage)
    ).all()
    managed = [row for row in gone if row.storage == "managed"]
    if managed:
        values = [{"erasure_id": erasure.id, "project_id": erasure.project_id, "sha256": row.sha256} for row in managed]
        session.execute(insert(ErasedBlob).values(values).on_conflict_do_nothing())
    counts = {
        "blobs": len(managed),
        "blob_bytes": sum(row.size_bytes for row in managed),
        "external_blobs": len(gone) - len(managed),
    }
    return counts, [row.sha256 for row in gone if row.sha256]


def remove_claims(session: Session, project_id: uuid.UUID, sha256s: Sequence[str]) -> int:
    """Give up that these bytes belong to a drive: their tombstones say more."""
    query = delete(MediaClaim).where(MediaClaim.project_id == project_id, MediaClaim.sha256.in_(sha256s))
    return len(session.execute(query.returning(MediaClaim.id)).all())


# --- what names an erased thing in passing ---------------------------------------------------------------------------


def mask_errors(session: Session, names: Iterable[str]) -> None:
    """Take ids and hashes that are gone out of the errors of jobs and runs."""
    gone = set(names)
    for table, column in ((Job, Job.last_error), (Run, Run.failure)):
        for row_id, said in session.execute(select(table.id, column).where(column.is_not(None))):
            masked = _NAMES.sub(lambda found: ERASED if found[0].lower() in gone else found[0], str(said))
            if masked != said:
                session.execute(update(table).where(table.id == row_id).values({column.key: masked}))


_NAMES = re.compile(r"[0-9a-fA-F]{64}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def mask_audit(session: Session, object_ids: Iterable[uuid.UUID]) -> None:
    """Acts on what is gone stay in the audit, without the ids."""
    session.execute(
        update(AuditEntry).where(AuditEntry.object_id.in_([str(each) for each in object_ids])).values(object_id=ERASED)
    )


def unbind_vehicle(session: Session, project_id: uuid.UUID, external_id: str) -> int:
    """No device's key names the vehicle any more, and neither does the audit; returns how many keys did."""
    keys = session.execute(
        delete(DeviceKeyVehicle)
        .where(DeviceKeyVehicle.project_id == project_id, DeviceKeyVehicle.vehicle_external_id == external_id)
        .returning(DeviceKeyVehicle.device_key_id)
    ).all()
    for entry in session.scalars(
        select(AuditEntry).where(
            AuditEntry.project_id == project_id,
            AuditEntry.object_kind == "device",
            AuditEntry.details["vehicles"].has_key(external_id),
        )
    ):
        vehicles = [ERASED if name == external_id else name for name in entry.details["vehicles"]]
        entry.details = {**entry.details, "vehicles": vehicles}
    session.flush()
    return len(keys)
