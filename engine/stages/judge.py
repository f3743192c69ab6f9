"""Judge: a challenger and the champion on the same frozen golden set, and the gate's verdict.

Every model is looked at alone first (`look`): its answers for the golden pictures become statistics per subject, kept.
A verdict is then arithmetic over what is kept, so that it can be made again from the record.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.domain.answers import Answer
from engine.domain.ontology import Ontology
from engine.evidence.dumb_baseline import constant_answer
from engine.evidence.gate import GateVerdict, decide
from engine.evidence.gate_input import GateInput, GateRules, ModelEvidence, Waiver, WaiverName
from engine.evidence.noise import Margin, NoiseError, margin
from engine.jobs import ledger
from engine.ports import BlobStore, FrameReader, Scorer
from engine.stages.look import Golden, golden_of, look, statistics_of
from engine.stages.train import answer_of
from engine.store import evidence as evidence_store
from engine.store.blobs import sha256_of
from engine.store.lines import get_line, get_model, ontology_of
from engine.store.manifests import ManifestRow, held_sha256, read
from engine.store.tables.labels import DatasetVersion, GoldenSet
from engine.store.tables.metadata import new_id
from engine.store.tables.models import GateReport, ModelLine, ModelVersion, Run, SeedNoise
from engine.store.unit_of_work import Database, UnitOfWork

BASELINE_LABELS = 500  # of a head, evenly spread: a constant needs no more


@dataclass(frozen=True)
class _Noise:
    """A head's margin, the metrics that it was measured on by setting, and whose they are."""

    margin: Margin
    values: list[list[float]]
    model_ids: list[str]


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
        golden = golden_of(session, blobs, golden_row, line)
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


def _baseline(
    blobs: BlobStore, ontology: Ontology, training_rows: Sequence[ManifestRow], golden: Golden
) -> dict[str, dict[str, dict[str, Any]]]:
    """The dumb baseline's statistics: what the training labels alone say of a picture that was never looked at."""
    constants: dict[str, Answer] = {}
    for head in ontology.heads:
        known = [row for row in training_rows if row.head == head.name]
        step = -(-len(known) // BASELINE_LABELS)
        if known:
            constants[head.name] = constant_answer(head, [answer_of(blobs, ontology, row) for row in known[::step]])
    return statistics_of(
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
