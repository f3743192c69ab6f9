"""Frozen sets that lose rows to an erasure: what is left of the manifest takes its place, and the set says so.

A set keeps its number, its header and the hash of what was frozen, which says what a model was trained or judged on.
Its manifest is another blob afterwards, with a hash of its own. Runs on such a dataset version that are not over end.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from engine.domain.ontology import Ontology
from engine.evidence.statistic import metric
from engine.jobs import failpoints, ledger
from engine.ports import BlobStore, LocalCopies, StoredBlob
from engine.store import erasures
from engine.store import evidence as evidence_store
from engine.store.blobs import register, sha256_of
from engine.store.lines import ontology_of
from engine.store.manifests import content_sha256, held_sha256, read, write
from engine.store.membership import among
from engine.store.predictions import MEDIA_TYPE
from engine.store.predictions import read as read_predictions
from engine.store.predictions import write as write_predictions
from engine.store.tables.labels import DatasetLabel, DatasetSubject, DatasetVersion, GoldenSet, GoldenSubject
from engine.store.tables.models import GoldenEvidence, Run
from engine.store.tables.recordings import Clip, Subject
from engine.store.tables.work import Job
from engine.store.unit_of_work import Database, UnitOfWork

PARQUET = "application/vnd.apache.parquet"


class SetChanged(RuntimeError):
    """Another erasure has changed the set meanwhile: do it again."""


@dataclass(frozen=True)
class _Evidence:
    """What is left of what a model said of a golden set."""

    id: uuid.UUID
    statistics: StoredBlob
    predictions: StoredBlob
    metrics: dict[str, float]
    before: tuple[uuid.UUID, uuid.UUID]


def clear_sets(
    database: Database, blobs: BlobStore, copies: LocalCopies, lease: ledger.Lease, erasure_id: uuid.UUID
) -> None:
    """Take the erasure's subjects out of every dataset version and golden set. Raises LeaseLost, SetChanged."""
    for table, members in ((DatasetVersion, DatasetSubject), (GoldenSet, GoldenSubject)):
        for set_id in _sets(database, table, members, erasure_id):
            _clear(database, blobs, lease, erasure_id, table, members, set_id)
            failpoints.hit("erase.after_set")
    with database.read() as session:
        lost = DatasetVersion.erased["erasures"].contains([str(erasure_id)])
        runs = session.scalars(
            select(Run.id).join(DatasetVersion, DatasetVersion.id == Run.dataset_version_id).where(lost)
        ).all()
    gone = sum(copies.forget_run(run_id) for run_id in runs)
    if gone:
        with database.unit() as unit:
            ledger.guard(unit, lease)
            erasures.add_to_receipt(unit.session, erasure_id, {"run_folders": gone})
            unit.commit()


def _members(members: type[Any], set_id: uuid.UUID | None, erasure_id: uuid.UUID) -> Any:
    query = (
        select(members)
        .join(Subject, Subject.id == members.subject_id)
        .join(Clip, Clip.id == Subject.clip_id)
        .where(Clip.erasure_id == erasure_id)
    )
    return query.where(_key(members) == set_id) if set_id is not None else query


def _key(members: type[Any]) -> Any:
    return members.dataset_version_id if members is DatasetSubject else members.golden_set_id


def _sets(database: Database, table: type[Any], members: type[Any], erasure_id: uuid.UUID) -> Sequence[uuid.UUID]:
    with database.read() as session:
        query = _members(members, None, erasure_id).with_only_columns(_key(members)).distinct()
        return session.scalars(query.order_by(_key(members))).all()


def _clear(
    database: Database,
    blobs: BlobStore,
    lease: ledger.Lease,
    erasure_id: uuid.UUID,
    table: type[Any],
    members: type[Any],
    set_id: uuid.UUID,
) -> None:
    with database.read() as session:
        before = session.get_one(table, set_id)
        ids = list(session.scalars(_members(members, set_id, erasure_id).with_only_columns(members.subject_id)))
        sha256 = sha256_of(session, before.manifest_blob_id)
        ontology = ontology_of(session, before.ontology_id)
        evidence = _evidence(session, set_id) if table is GoldenSet else []
    gone = {str(subject_id) for subject_id in ids}
    header, rows = read(blobs.read(sha256), held_sha256(before))
    left = [row for row in rows if row.subject_id not in gone]
    manifest = blobs.put(write(header, left))
    kept = [_without(blobs, ontology, row, hashes, gone) for row, hashes in evidence]
    with database.unit() as unit:
        session = unit.session
        ledger.guard(unit, lease)
        now = session.get_one(table, set_id, with_for_update=True)
        known = {row.id for row, _ in _evidence(session, set_id)} if table is GoldenSet else set()
        if now.manifest_blob_id != before.manifest_blob_id or known != {each.id for each in kept}:
            raise SetChanged(f"{table.__tablename__} {set_id} changed while its rows were being erased")
        old = [before.manifest_blob_id, *(blob for each in kept for blob in each.before)]
        now.manifest_blob_id = register(session, now.project_id, manifest, PARQUET).id
        now.remaining_sha256 = content_sha256(header, left)
        told = now.erased or {"subjects": 0, "labels": 0, "erasures": []}
        now.erased = {
            "subjects": told["subjects"] + len(gone),
            "labels": told["labels"] + len(rows) - len(left),
            "erasures": sorted({*told["erasures"], str(erasure_id)}),
        }
        for each in kept:
            _record_evidence(session, now.project_id, each)
        session.flush()
        counts = {"dataset_rows" if table is DatasetVersion else "golden_rows": len(rows) - len(left)}
        session.execute(delete(members).where(_key(members) == set_id, members.subject_id == among(ids)))
        if table is DatasetVersion:
            labels = [uuid.UUID(row.label_id) for row in rows if row.subject_id in gone]
            session.execute(
                delete(DatasetLabel).where(
                    DatasetLabel.dataset_version_id == set_id, DatasetLabel.label_id == among(labels)
                )
            )
            counts["ended_runs"] = _end_runs(unit, now)
        erasure = erasures.get(session, erasure_id)
        blob_counts, _ = erasures.remove_blobs(session, erasure, old)
        erasures.add_to_receipt(session, erasure_id, {**counts, **blob_counts})
        unit.commit()


def _end_runs(unit: UnitOfWork, dataset: DatasetVersion) -> int:
    """Runs on it that are not over end now, with the reason; their workers lose their leases."""
    why = lost_rows(dataset)
    runs = unit.session.scalars(
        update(Run)
        .where(Run.dataset_version_id == dataset.id, Run.state.in_(("due", "running")))
        .values(state="refused", failure=why, finished_at=func.clock_timestamp())
        .returning(Run.id)
    ).all()
    for job_id in unit.session.scalars(select(Job.id).where(Job.kind == "train", Job.subject_id == among(runs))).all():
        ledger.cancel(unit, job_id, why)
    return len(runs)


def lost_rows(dataset: DatasetVersion) -> str:
    """Why nothing is trained on a dataset version that has lost rows."""
    lost = (dataset.erased or {}).get("subjects", 0)
    return (
        f"dataset version {dataset.number} has lost {lost} subjects to an erasure since it was frozen: "
        "freeze another one (`longtail retrain`)"
    )


# --- what models said of a golden set -------------------------------------------------------------------------------


def _evidence(session: Session, set_id: uuid.UUID) -> list[tuple[GoldenEvidence, tuple[str, str]]]:
    rows = session.scalars(select(GoldenEvidence).where(GoldenEvidence.golden_set_id == set_id)).all()
    return [
        (row, (sha256_of(session, row.statistics_blob_id), sha256_of(session, row.predictions_blob_id))) for row in rows
    ]


def _without(
    blobs: BlobStore, ontology: Ontology, row: GoldenEvidence, hashes: tuple[str, str], gone: set[str]
) -> _Evidence:
    known = evidence_store.unpack(blobs.read(hashes[0]))
    statistics = {
        head: {subject: told for subject, told in of_head.items() if subject not in gone}
        for head, of_head in known.items()
    }
    predictions = [each for each in read_predictions(blobs.read(hashes[1])) if each.subject_id not in gone]
    metrics = {
        head: value
        for head, of_head in statistics.items()
        if of_head and not math.isnan(value := metric(ontology.head(head), list(of_head.values())))
    }
    return _Evidence(
        row.id,
        blobs.put(evidence_store.pack(statistics)),
        blobs.put(write_predictions(predictions)),
        metrics,
        (row.statistics_blob_id, row.predictions_blob_id),
    )


def _record_evidence(session: Session, project_id: uuid.UUID, left: _Evidence) -> None:
    session.execute(
        update(GoldenEvidence)
        .where(GoldenEvidence.id == left.id)
        .values(
            statistics_blob_id=register(session, project_id, left.statistics, evidence_store.MEDIA_TYPE).id,
            predictions_blob_id=register(session, project_id, left.predictions, MEDIA_TYPE).id,
            metrics=left.metrics,
        )
    )
