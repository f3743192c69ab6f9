"""Look: what a model shows on a golden set, kept once for all judgements of it.

Its answers become statistics per subject, and its uncertainties the fixed reference that later scores are held against.
"""

from __future__ import annotations

import json
import math
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.acquisition.quantiles import reference_knots
from engine.domain.answers import Answer
from engine.domain.formats import ModelFormat
from engine.domain.manifest import CLOCK_TAGS
from engine.domain.ontology import Ontology
from engine.domain.refusals import Conflict
from engine.evidence.gate_input import GoldenSubject
from engine.evidence.statistic import metric, statistic
from engine.jobs import ledger
from engine.ports import BlobStore, FrameReader, ModelFiles, Scorer, StoredBlob
from engine.stages.discard import discard
from engine.stages.train import answer_of
from engine.store import evidence as evidence_store
from engine.store.blobs import register, sha256_of
from engine.store.lines import get_line, model_files, ontology_of
from engine.store.manifests import ManifestRow, by_subject, held_sha256, read
from engine.store.predictions import MEDIA_TYPE, Prediction, write
from engine.store.tables.labels import GoldenSet
from engine.store.tables.metadata import new_id
from engine.store.tables.models import GoldenEvidence, ModelLine, ModelVersion
from engine.store.tables.recordings import Clip
from engine.store.unit_of_work import Database

BATCH = 16
SLICES = ("weather", "time_of_day")  # the tags whose values are slices, where a line's settings name no others


class GoldenOvertaken(RuntimeError):
    """The golden set lost subjects to an erasure while a model was being looked at: look again."""


@dataclass(frozen=True)
class Golden:
    """A golden set, read: its rows and what the gate is told of its subjects."""

    row: GoldenSet
    rows: Sequence[ManifestRow]
    subjects: Sequence[GoldenSubject]


@dataclass(frozen=True)
class Look:
    """What a model showed on a golden set."""

    statistics: dict[str, dict[str, dict[str, Any]]]
    metrics: dict[str, float]


def look(
    database: Database,
    blobs: BlobStore,
    reader: FrameReader,
    scorer: Scorer,
    model: ModelVersion,
    golden_set_id: uuid.UUID,
    lease: ledger.Lease,
) -> Look:
    """What `model` shows on a golden set: from the record where it was looked at before, else by asking it.

    Raises LeaseLost, with nothing recorded, when the lease is no longer ours, and Conflict for a model that can't be
    asked and whose answers nobody has sent.
    """
    with database.read() as session:
        line = get_line(session, model.line_id)
        ontology = ontology_of(session, model.ontology_id)
        golden = golden_of(session, blobs, session.get_one(GoldenSet, golden_set_id), line)
        found = evidence_store.evidence_of(session, model.id, golden_set_id)
        if found is not None and found.weights_sha256 == model.weights_sha256:
            return Look(
                evidence_store.unpack(blobs.read(sha256_of(session, found.statistics_blob_id))), dict(found.metrics)
            )
        files = model_files(session, blobs, model.id)
    if files.format == ModelFormat.PREDICTIONS:
        raise Conflict(
            "no-golden-predictions",
            f"version {model.number} can't be asked here, and its answers for golden set {golden_set_id} were not sent",
            f"send them with POST /v1/golden-sets/{golden_set_id}/predictions",
        )
    predictions = _ask(blobs, reader, scorer, files, golden)
    return record_look(database, blobs, model, ontology, line, golden, predictions, lease)


def record_look(
    database: Database,
    blobs: BlobStore,
    model: ModelVersion,
    ontology: Ontology,
    line: ModelLine,
    golden: Golden,
    predictions: Sequence[Prediction],
    lease: ledger.Lease | None = None,
) -> Look:
    """Keep what these predictions show, unless it was looked at before. Raises LeaseLost, GoldenOvertaken."""
    answers = {(p.subject_id, p.head): p.answer for p in predictions}
    statistics = statistics_of(
        blobs, ontology, golden, {head: lambda row: answers.get((row.subject_id, row.head)) for head in model.heads}
    )
    metrics = {
        head: value
        for head, known in statistics.items()
        if (value := metric(ontology.head(head), list(known.values()))) == value
    }
    stored = blobs.put(evidence_store.pack(statistics)), blobs.put(write(predictions))
    with database.unit() as unit:
        session = unit.session
        if lease is not None:
            ledger.guard(unit, lease)
        now = session.get_one(GoldenSet, golden.row.id, with_for_update={"read": True})
        overtaken = now.manifest_blob_id != golden.row.manifest_blob_id
        if not overtaken:
            _record_evidence(session, model, golden, stored, metrics, predictions)
            unit.commit()
    if overtaken:
        discard(database, blobs, [blob.sha256 for blob in stored])
        raise GoldenOvertaken(f"golden set {golden.row.name!r} lost subjects to an erasure: look at what is left")
    return Look(statistics, metrics)


def _record_evidence(
    session: Session,
    model: ModelVersion,
    golden: Golden,
    stored: tuple[StoredBlob, StoredBlob],
    metrics: Mapping[str, float],
    predictions: Sequence[Prediction],
) -> None:
    project_id = model.project_id
    session.execute(
        insert(GoldenEvidence)
        .values(
            id=new_id(),
            project_id=project_id,
            model_version_id=model.id,
            golden_set_id=golden.row.id,
            weights_sha256=model.weights_sha256,
            statistics_blob_id=register(session, project_id, stored[0], evidence_store.MEDIA_TYPE).id,
            predictions_blob_id=register(session, project_id, stored[1], MEDIA_TYPE).id,
            metrics=metrics,
        )
        .on_conflict_do_nothing()  # two judgements may look at the same champion at once, and see the same
    )
    # The fixed reference of this model version: scores of any later clip become quantiles of these.
    uncertainties: dict[str, list[float]] = defaultdict(list)
    for prediction in predictions:
        uncertainties[prediction.head].append(prediction.uncertainty)
    knots = {head: list(reference_knots(raw)) for head, raw in uncertainties.items()}
    session.execute(
        update(ModelVersion)
        .where(ModelVersion.id == model.id, ModelVersion.score_reference.is_(None))
        .values(score_reference=knots)
    )


def golden_of(session: Session, blobs: BlobStore, row: GoldenSet, line: ModelLine) -> Golden:
    """The golden set, read."""
    _, rows = read(blobs.read(sha256_of(session, row.manifest_blob_id)), held_sha256(row))
    tags = line.settings.get("slices", SLICES)
    clips = {uuid.UUID(row.clip_id) for row in rows}
    adrift = set(map(str, session.scalars(select(Clip.id).where(Clip.id.in_(clips), Clip.clock_suspect))))
    subjects = []
    for subject, labels in by_subject(rows):
        known = json.loads(labels[0].tags)
        subjects.append(
            GoldenSubject(
                id=subject,
                split_group=labels[0].split_group,
                clip_id=labels[0].clip_id,
                heads=frozenset(label.head for label in labels),
                # A clip whose clock is wrong stands in no slice of time.
                slices=frozenset(
                    f"{tag}={known[tag]}"
                    for tag in tags
                    if tag in known and not (tag in CLOCK_TAGS and labels[0].clip_id in adrift)
                ),
            )
        )
    return Golden(row, rows, subjects)


def _ask(blobs: BlobStore, reader: FrameReader, scorer: Scorer, files: ModelFiles, golden: Golden) -> list[Prediction]:
    pictures = {subject: labels[0].picture_sha256 for subject, labels in by_subject(golden.rows)}
    subjects = list(pictures)
    predictions = []
    for start in range(0, len(subjects), BATCH):
        batch = subjects[start : start + BATCH]
        scores = scorer.score(files, [reader.decode_image(blobs.read(pictures[subject])) for subject in batch])
        for subject, score in zip(batch, scores, strict=True):
            predictions += [
                Prediction(subject, head, answer, score.uncertainty[head])
                for head, answer in score.answers.items()
                # An answer that has no place among the others can't be chosen by: to the gate it is no answer.
                if math.isfinite(score.uncertainty.get(head, math.nan))
            ]
    return predictions


def statistics_of(
    blobs: BlobStore, ontology: Ontology, golden: Golden, answer_for: Mapping[str, Any]
) -> dict[str, dict[str, dict[str, Any]]]:
    """By head and subject the statistic of what `answer_for` the head says of each golden label's row."""
    statistics: dict[str, dict[str, dict[str, Any]]] = {head: {} for head in answer_for}
    for row in golden.rows:
        if row.head in answer_for:
            answer: Answer | None = answer_for[row.head](row)
            statistics[row.head][row.subject_id] = statistic(
                ontology.head(row.head), answer, answer_of(blobs, ontology, row), row.annotated_classes
            )
    return statistics
