"""Judge: a challenger and the champion on the same frozen golden set, and the gate's verdict.

Every model is looked at alone first (`look`): its answers for the golden pictures become statistics per subject, kept.
A verdict is then arithmetic over what is kept, so that it can be made again from the record.
"""

from __future__ import annotations

import json
import math
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.acquisition.quantiles import reference_knots
from engine.domain.answers import Answer
from engine.domain.manifest import CLOCK_TAGS
from engine.domain.ontology import Ontology
from engine.evidence.dumb_baseline import constant_answer
from engine.evidence.gate import GateVerdict, decide
from engine.evidence.gate_input import GateInput, GateRules, GoldenSubject, ModelEvidence, Waiver, WaiverName
from engine.evidence.noise import Margin, NoiseError, margin
from engine.evidence.statistic import metric, statistic
from engine.jobs import ledger
from engine.ports import BlobStore, FrameReader, ModelFiles, Scorer, StoredBlob
from engine.stages.discard import discard
from engine.stages.train import answer_of
from engine.store import evidence as evidence_store
from engine.store.blobs import register, sha256_of
from engine.store.lines import get_line, get_model, model_files, ontology_of
from engine.store.manifests import ManifestRow, by_subject, held_sha256, read
from engine.store.predictions import MEDIA_TYPE, Prediction, write
from engine.store.tables.labels import DatasetVersion, GoldenSet
from engine.store.tables.metadata import new_id
from engine.store.tables.models import GateReport, GoldenEvidence, ModelLine, ModelVersion, Run, SeedNoise
from engine.store.tables.recordings import Clip
from engine.store.unit_of_work import Database, UnitOfWork

BATCH = 16
BASELINE_LABELS = 500  # of a head, evenly spread: a constant needs no more
SLICES = ("weather", "time_of_day")  # the tags whose values are slices, where a line's settings name no others


class GoldenOvertaken(RuntimeError):
    """The golden set lost subjects to an erasure while a model was being looked at: look again."""


@dataclass(frozen=True)
class _Golden:
    """A golden set, read: its rows and what the gate is told of its subjects."""

    row: GoldenSet
    rows: Sequence[ManifestRow]
    subjects: Sequence[GoldenSubject]


@dataclass(frozen=True)
class _Noise:
    """A head's margin, the metrics that it was measured on by setting, and whose they are."""

    margin: Margin
    values: list[list[float]]
    model_ids: list[str]


@dataclass(frozen=True)
class _Look:
    """What a model showed on a golden set."""

    statistics: dict[str, dict[str, dict[str, Any]]]
    metrics: dict[str, float]


def judge(
    database: Database, blobs: BlobStore, reader: FrameReader, scorer: Scorer, lease: ledger.Lease
) -> uuid.UUID | None:
    """Work a judge job: returns the gate report's id, or none for a repeat that only measures noise."""
    with database.read() as session:
        model = get_model(session, lease.subject_id)
        line = get_line(session, model.line_id)
        ontology = ontology_of(session, line.ontology_id)
        run = session.get(Run, model.run_id) if model.run_id else None
        champion = get_model(session, line.champion_id) if line.champion_id else None
        golden_row = session.get_one(GoldenSet, uuid.UUID(lease.payload["golden_set_id"]))
        golden = _golden(session, blobs, golden_row, line)
        training_rows = _training_rows(session, blobs, line, run)
    seen = look(database, blobs, reader, scorer, model, golden.row.id, lease)
    if run is not None and run.purpose == "noise":
        with database.unit() as unit:
            ledger.complete(unit, lease)
            _record_noise(unit, line, golden.row)
            unit.commit()
        return None
    against = look(database, blobs, reader, scorer, champion, golden.row.id, lease) if champion else None
    baseline = _baseline(blobs, ontology, training_rows, golden) if training_rows else None
    targets = list(run.target_heads) if run else list(lease.payload.get("target_heads", ()))
    asked = lease.payload.get("waivers") or line.settings.get("gate_waivers", [])
    waivers = [_waiver(document) for document in asked]
    with database.read() as session:
        margins = {head: noise.margin for head, noise in _noise(session, line, golden.row).items()}

    def shown(number: str, statistics: Mapping[str, Any]) -> ModelEvidence:
        return ModelEvidence(number, held_sha256(golden.row), frozenset(statistics), statistics)

    verdict = decide(
        GateInput(
            heads=ontology.heads,
            golden_hash=held_sha256(golden.row),
            golden=golden.subjects,
            challenger=shown(f"v{model.number}", seen.statistics),
            champion=shown(f"v{champion.number}", against.statistics) if champion and against else None,
            baseline=shown("baseline", baseline) if baseline is not None else None,
            targets=targets,
            margins=margins,
            seed=golden.row.version,
            rules=GateRules(**line.settings.get("gate", {})),
            waivers=waivers,
        )
    )
    with database.unit() as unit:
        ledger.complete(unit, lease)
        _record_noise(unit, line, golden.row)
        report = _record(unit, line, model, champion, golden.row, targets, verdict, asked)
        if verdict.passed and line.settings.get("auto_promote", True):
            ledger.enqueue(
                unit,
                kind="promote",
                project_id=line.project_id,
                subject_id=report.id,
                dedupe_key=f"promote:{report.id}",
            )
        unit.commit()
    return report.id


def look(
    database: Database,
    blobs: BlobStore,
    reader: FrameReader,
    scorer: Scorer,
    model: ModelVersion,
    golden_set_id: uuid.UUID,
    lease: ledger.Lease,
) -> _Look:
    """What `model` shows on a golden set: from the record where it was looked at before, else by asking it.

    Raises LeaseLost, with nothing recorded, when the lease is no longer ours.
    """
    with database.read() as session:
        line = get_line(session, model.line_id)
        ontology = ontology_of(session, model.ontology_id)
        golden = _golden(session, blobs, session.get_one(GoldenSet, golden_set_id), line)
        found = evidence_store.evidence_of(session, model.id, golden_set_id)
        if found is not None and found.weights_sha256 == model.weights_sha256:
            return _Look(
                evidence_store.unpack(blobs.read(sha256_of(session, found.statistics_blob_id))), dict(found.metrics)
            )
        files = model_files(session, blobs, model.id)
    predictions = _ask(blobs, reader, scorer, files, golden)
    answers = {(p.subject_id, p.head): p.answer for p in predictions}
    statistics = _statistics(
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
        ledger.guard(unit, lease)
        now = session.get_one(GoldenSet, golden_set_id, with_for_update={"read": True})
        overtaken = now.manifest_blob_id != golden.row.manifest_blob_id
        if not overtaken:
            _record_evidence(session, model, golden, stored, metrics, predictions)
            unit.commit()
    if overtaken:
        discard(database, blobs, [blob.sha256 for blob in stored])
        raise GoldenOvertaken(f"golden set {golden.row.name!r} lost subjects to an erasure: look at what is left")
    return _Look(statistics, metrics)


def _record_evidence(
    session: Session,
    model: ModelVersion,
    golden: _Golden,
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


def _golden(session: Session, blobs: BlobStore, row: GoldenSet, line: ModelLine) -> _Golden:
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
    return _Golden(row, rows, subjects)


def _training_rows(session: Session, blobs: BlobStore, line: ModelLine, run: Run | None) -> list[ManifestRow]:
    """What the dumb baseline learns from: the run's own dataset, or the line's newest for a model made elsewhere."""
    dataset = (
        session.get_one(DatasetVersion, run.dataset_version_id)
        if run
        else session.scalars(
            select(DatasetVersion).where(DatasetVersion.line_id == line.id).order_by(DatasetVersion.id.desc()).limit(1)
        ).one_or_none()
    )
    if dataset is None:
        return []
    return read(blobs.read(sha256_of(session, dataset.manifest_blob_id)), held_sha256(dataset))[1]


def _ask(blobs: BlobStore, reader: FrameReader, scorer: Scorer, files: ModelFiles, golden: _Golden) -> list[Prediction]:
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


def _statistics(
    blobs: BlobStore, ontology: Ontology, golden: _Golden, answer_for: Mapping[str, Any]
) -> dict[str, dict[str, dict[str, Any]]]:
    statistics: dict[str, dict[str, dict[str, Any]]] = {head: {} for head in answer_for}
    for row in golden.rows:
        if row.head in answer_for:
            answer: Answer | None = answer_for[row.head](row)
            statistics[row.head][row.subject_id] = statistic(
                ontology.head(row.head), answer, answer_of(blobs, ontology, row), row.annotated_classes
            )
    return statistics


def _baseline(
    blobs: BlobStore, ontology: Ontology, training_rows: Sequence[ManifestRow], golden: _Golden
) -> dict[str, dict[str, dict[str, Any]]]:
    """The dumb baseline's statistics: what the training labels alone say of a picture that was never looked at."""
    constants: dict[str, Answer] = {}
    for head in ontology.heads:
        known = [row for row in training_rows if row.head == head.name]
        step = -(-len(known) // BASELINE_LABELS)
        if known:
            constants[head.name] = constant_answer(head, [answer_of(blobs, ontology, row) for row in known[::step]])
    return _statistics(
        blobs, ontology, golden, {head: lambda row, constant=constant: constant for head, constant in constants.items()}
    )


def _noise(session: Session, line: ModelLine, golden: GoldenSet) -> dict[str, _Noise]:
    """By head, the margin from every group of runs that differ in the seed alone, and what it came from."""
    groups = evidence_store.repeats(session, line.id, golden.id)
    noise: dict[str, _Noise] = {}
    for head in sorted({head for group in groups for metrics in group.values() for head in metrics}):
        values = [[metrics[head] for metrics in group.values() if head in metrics] for group in groups]
        models = [model for group in groups for model, metrics in group.items() if head in metrics]
        # Without a margin the gate refuses, and says that the noise was not measured.
        with suppress(NoiseError):
            noise[head] = _Noise(margin(values), values, models)
    return noise


def _record_noise(unit: UnitOfWork, line: ModelLine, golden: GoldenSet) -> None:
    session = unit.session
    get_line(session, line.id, lock=True)  # repeats that end at once are counted one after the other
    for head, noise in _noise(session, line, golden).items():
        measured = {"model_version_ids": noise.model_ids, "values": noise.values, "measured_at": func.clock_timestamp()}
        session.execute(
            insert(SeedNoise)
            .values(
                id=new_id(),
                project_id=line.project_id,
                line_id=line.id,
                golden_set_id=golden.id,
                head=head,
                **measured,
            )
            .on_conflict_do_update(index_elements=["line_id", "golden_set_id", "head"], set_=measured)
        )


def _record(
    unit: UnitOfWork,
    line: ModelLine,
    model: ModelVersion,
    champion: ModelVersion | None,
    golden: GoldenSet,
    targets: Sequence[str],
    verdict: GateVerdict,
    waivers: Any,
) -> GateReport:
    looks = unit.session.scalars(
        update(GoldenSet).where(GoldenSet.id == golden.id).values(looks=GoldenSet.looks + 1).returning(GoldenSet.looks)
    ).one()
    report = GateReport(
        id=new_id(),
        project_id=line.project_id,
        line_id=line.id,
        challenger_id=model.id,
        challenger_weights_sha256=model.weights_sha256,
        champion_id=champion.id if champion else None,
        golden_set_id=golden.id,
        golden_look=looks,
        target_heads=list(targets),
        verdict="passed" if verdict.passed else "refused",
        reasons=[reason.text for reason in verdict.reasons if not reason.held],
        waiver={"waivers": waivers} if waivers else None,
        report=verdict.to_document(),
    )
    unit.session.add(report)
    unit.session.flush()
    return report


def _waiver(document: Mapping[str, Any]) -> Waiver:
    return Waiver(WaiverName(document["name"]), document["by"], document["why"], document.get("head"))
