"""Freeze: the current labels become an immutable, content-hashed set. Golden is never trained on."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Uuid, exists, func, insert, literal, select
from sqlalchemy.orm import Session

from engine.domain.refusals import Conflict
from engine.jobs import ledger
from engine.ports import BlobStore, FrameReader, StoredBlob
from engine.stages.discard import discard
from engine.stages.pin import pin
from engine.store.blobs import register
from engine.store.labels_to_freeze import freezable
from engine.store.lines import get_line
from engine.store.living import hold_subjects
from engine.store.manifests import ManifestRow, canonical, content_sha256, write
from engine.store.membership import among
from engine.store.tables.labels import (
    Annotation,
    DatasetLabel,
    DatasetSubject,
    DatasetVersion,
    GoldenSet,
    GoldenSubject,
    Label,
)
from engine.store.tables.metadata import new_id
from engine.store.tables.models import ModelLine, OntologyVersion
from engine.store.tables.recordings import Blob, Clip, Drive, Frame, SplitGroup, Stream, Subject
from engine.store.unit_of_work import Database, UnitOfWork


class NothingToFreeze(Conflict):
    """There is no label that the set could hold."""


class FreezeOvertaken(RuntimeError):
    """Something that the set would hold was erased while it was being frozen: freeze again."""


TRIES = 3


@dataclass(frozen=True)
class Frozen:
    """What was frozen, or found frozen already."""

    id: uuid.UUID
    number: int
    content_sha256: str
    subjects: int
    labels: int
    created: bool


def freeze_dataset(
    database: Database, blobs: BlobStore, reader: FrameReader, line_id: uuid.UUID, lease: ledger.Lease | None = None
) -> Frozen:
    """A dataset version of every current label of the pool; the same labels are the same version.

    What is erased meanwhile is not in it: it is frozen again then.
    Raises NothingToFreeze; LeaseLost, with nothing recorded, when `lease` is no longer ours.
    """
    return _until_whole(lambda: _freeze_dataset(database, blobs, reader, line_id, lease))


def _until_whole(freeze: Callable[[], Frozen]) -> Frozen:
    for _ in range(TRIES - 1):
        with suppress(FreezeOvertaken):
            return freeze()
    return freeze()


def _freeze_dataset(
    database: Database, blobs: BlobStore, reader: FrameReader, line_id: uuid.UUID, lease: ledger.Lease | None
) -> Frozen:
    line, header, rows = _collect(database, blobs, reader, line_id, "pool")
    content = content_sha256(header, rows)
    manifest = blobs.put(write(header, rows))
    with database.unit() as unit:
        session = unit.session
        _hold(unit, database, blobs, rows, manifest)
        if lease is not None:
            ledger.guard(unit, lease)
        get_line(session, line_id, lock=True)
        found = session.execute(
            select(DatasetVersion).where(DatasetVersion.line_id == line_id, DatasetVersion.content_sha256 == content)
        ).scalar_one_or_none()
        if found is not None:
            return Frozen(found.id, found.number, content, found.counts["subjects"], found.counts["labels"], False)
        number = (
            session.scalar(select(func.max(DatasetVersion.number)).where(DatasetVersion.line_id == line_id)) or 0
        ) + 1
        version = DatasetVersion(
            id=new_id(),
            project_id=line.project_id,
            line_id=line_id,
            number=number,
            ontology_id=line.ontology_id,
            content_sha256=content,
            header=header,
            manifest_blob_id=register(session, line.project_id, manifest, "application/vnd.apache.parquet").id,
            counts=_counts(rows),
        )
        session.add(version)
        session.flush()
        # The split is read from the subjects and held by the composite key and the check: golden can't get in here.
        subjects = sorted({row.subject_id for row in rows})
        session.execute(
            insert(DatasetSubject).from_select(
                ["dataset_version_id", "subject_id", "split", "project_id"],
                select(_constant(version.id), Subject.id, Subject.split, Subject.project_id).where(
                    Subject.id == among(uuid.UUID(s) for s in subjects)
                ),
            )
        )
        session.execute(
            insert(DatasetLabel),
            [
                {"dataset_version_id": version.id, "label_id": uuid.UUID(row.label_id), "project_id": line.project_id}
                for row in rows
            ],
        )
        unit.commit()
    return Frozen(version.id, number, content, len(subjects), len(rows), True)


def freeze_golden(database: Database, blobs: BlobStore, reader: FrameReader, line_id: uuid.UUID, name: str) -> Frozen:
    """A golden set of every current label of the golden drives; a new version of `name` when the labels differ.

    It is blind when no model had a hand in a label: none is a model's own, or of a person who was shown a prediction.
    """
    return _until_whole(lambda: _freeze_golden(database, blobs, reader, line_id, name))


def _hold(
    unit: UnitOfWork, database: Database, blobs: BlobStore, rows: Sequence[ManifestRow], manifest: StoredBlob
) -> None:
    """Hold every subject of the set. Raises FreezeOvertaken, and the manifest goes, when one was erased."""
    subjects = {uuid.UUID(row.subject_id) for row in rows}
    lost = subjects - hold_subjects(unit.session, subjects)
    if lost:
        discard(database, blobs, [manifest.sha256])
        raise FreezeOvertaken(f"{len(lost)} subjects were erased while the set was being frozen")


def _freeze_golden(database: Database, blobs: BlobStore, reader: FrameReader, line_id: uuid.UUID, name: str) -> Frozen:
    line, header, rows = _collect(database, blobs, reader, line_id, "golden")
    content = content_sha256(header, rows)
    manifest = blobs.put(write(header, rows))
    with database.unit() as unit:
        session = unit.session
        _hold(unit, database, blobs, rows, manifest)
        get_line(session, line_id, lock=True)
        newest = session.execute(
            select(GoldenSet)
            .where(GoldenSet.project_id == line.project_id, GoldenSet.name == name)
            .order_by(GoldenSet.version.desc())
            .limit(1)
        ).scalar_one_or_none()
        subjects = sorted({row.subject_id for row in rows})
        if newest is not None and newest.content_sha256 == content and newest.line_id == line_id:
            return Frozen(newest.id, newest.version, content, len(subjects), len(rows), False)
        golden = GoldenSet(
            id=new_id(),
            project_id=line.project_id,
            name=name,
            version=newest.version + 1 if newest else 1,
            line_id=line_id,
            ontology_id=line.ontology_id,
            content_sha256=content,
            header=header,
            manifest_blob_id=register(session, line.project_id, manifest, "application/vnd.apache.parquet").id,
            blind=not _led_by_a_model(session, rows),
        )
        session.add(golden)
        session.flush()
        session.execute(
            insert(GoldenSubject).from_select(
                ["golden_set_id", "subject_id", "split", "project_id"],
                select(_constant(golden.id), Subject.id, Subject.split, Subject.project_id).where(
                    Subject.id == among(uuid.UUID(s) for s in subjects)
                ),
            )
        )
        unit.commit()
    return Frozen(golden.id, golden.version, content, len(subjects), len(rows), True)


def _led_by_a_model(session: Session, rows: Sequence[ManifestRow]) -> bool:
    """Whether a label is a model's own, or stands on an annotation for which a prediction was shown."""
    if any(row.source == "auto" for row in rows):
        return True
    said = session.scalars(select(Label.annotation_ids).where(Label.id == among(uuid.UUID(r.label_id) for r in rows)))
    annotations = {uuid.UUID(annotation) for ids in said for annotation in ids}
    shown = select(exists().where(Annotation.id == among(annotations), Annotation.prediction_shown))
    return bool(session.execute(shown).scalar_one())


def _constant(value: uuid.UUID) -> ColumnElement[uuid.UUID]:
    return literal(value, Uuid())


def _collect(
    database: Database, blobs: BlobStore, reader: FrameReader, line_id: uuid.UUID, split: str
) -> tuple[ModelLine, dict[str, object], list[ManifestRow]]:
    with database.read() as session:
        line = get_line(session, line_id)
        ontology = session.get_one(OntologyVersion, line.ontology_id)
        frame_ids = session.scalars(
            select(Subject.frame_id)
            .distinct()
            .join(Label, Label.subject_id == Subject.id)
            .join(Clip, Clip.id == Subject.clip_id)
            .where(*freezable(line, split))
        ).all()
    if not frame_ids:
        raise NothingToFreeze(
            "nothing-to-freeze",
            f"line {line.name!r} has no label in the {split} split under ontology {ontology.name} v{ontology.version}",
            "label some subjects, or import labels, first",
        )
    pin(database, blobs, reader, [frame_id for frame_id in frame_ids if frame_id is not None])
    with database.read() as session:
        rows = _rows(session, line, split)
    header: dict[str, object] = {
        "line": line.name,
        "ontology": {"name": ontology.name, "version": ontology.version, "digest": ontology.digest},
        "split": split,
        "split_policy": "by split group",
    }
    return line, header, rows


def _rows(session: Session, line: ModelLine, split: str) -> list[ManifestRow]:
    picture, array = Blob.__table__.alias("picture"), Blob.__table__.alias("array")
    result = session.execute(
        select(Label, Frame, Clip, Drive.external_id, SplitGroup.name, Stream.name, picture.c.sha256, array.c.sha256)
        .join(Subject, Subject.id == Label.subject_id)
        .join(Frame, Frame.id == Subject.frame_id)
        .join(Stream, Stream.id == Frame.stream_id)
        .join(Clip, Clip.id == Subject.clip_id)
        .join(Drive, Drive.id == Clip.drive_id)
        .join(SplitGroup, SplitGroup.id == Drive.split_group_id)
        .join(picture, picture.c.id == Frame.picture_blob_id)
        .outerjoin(array, array.c.id == Label.array_blob_id)
        .where(*freezable(line, split))
        .order_by(Label.subject_id, Label.head)
    )
    return [
        ManifestRow(
            subject_id=str(label.subject_id),
            split_group=group,
            drive=drive,
            clip_id=str(clip.id),
            clip=clip.external_id,
            stream=stream,
            pts=frame.pts,
            capture_ns=frame.capture_ns,
            picture_sha256=picture_sha256,
            tags=canonical(clip.tags),
            head=label.head,
            label_id=str(label.id),
            source=label.source,
            annotated_classes=label.annotated_classes,
            value=json.dumps(label.value, sort_keys=True, separators=(",", ":")),
            array_sha256=array_sha256,
        )
        for label, frame, clip, drive, group, stream, picture_sha256, array_sha256 in result
    ]


def _counts(rows: Sequence[ManifestRow]) -> dict[str, object]:
    return {
        "subjects": len({row.subject_id for row in rows}),
        "labels": len(rows),
        "split_groups": len({row.split_group for row in rows}),
        "heads": dict(sorted(Counter(row.head for row in rows).items())),
        "sources": dict(sorted(Counter(row.source for row in rows).items())),
    }
