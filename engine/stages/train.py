"""Train: a dataset version becomes a run, and a finished run a model version."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import func, select, update

from engine.domain.answers import Answer
from engine.domain.formats import MEDIA_TYPES, STARTABLE, ModelFormat
from engine.domain.ontology import Head, Ontology
from engine.domain.refusals import Invalid
from engine.jobs import ledger
from engine.ports import BlobStore, ModelFiles, Trainer, TrainingPlan, TrainingProgress, TrainingRefused, TrainingSample
from engine.stages.discard import discard
from engine.store.blobs import register, sha256_of
from engine.store.lines import add_model, artifact_of, get_line, model_files, newest_golden_set, ontology_of
from engine.store.manifests import ManifestRow, by_subject, held_sha256, read
from engine.store.membership import among
from engine.store.tables.labels import DatasetVersion
from engine.store.tables.metadata import new_id
from engine.store.tables.models import ModelLine, Run
from engine.store.tables.recordings import Clip, Subject
from engine.store.unit_of_work import Database, UnitOfWork

HYDRANET = "hydranet"

# What a line's settings may say about training, and what holds where they don't.
PLAN = {
    "trainer": HYDRANET,  # or a name that the operator has given to a command of their own
    "backbone": "regnet_y_400mf",
    "height": 256,
    "width": 512,
    "batch_size": 12,
    "learning_rate_scratch": 3e-3,
    "learning_rate_warm": 1.5e-3,  # a warm start must not first destroy what it starts from
    "steps_scratch": 3000,
    "steps_warm": 1000,
    "checkpoint_every": 50,
    "threads": 1,
}


COUNTS = ("steps", "batch_size", "height", "width", "checkpoint_every", "threads")


class ErasedInTraining(TrainingRefused):
    """Something erased was about to be trained on."""


class DatasetOvertaken(RuntimeError):
    """The dataset version has lost rows to an erasure since it was frozen: freeze another one."""


class GoldenInTraining(TrainingRefused):
    """A golden subject was about to be trained on. Nothing trains on it, whoever asks."""


@dataclass(frozen=True)
class RunRequest:
    """A run to be made. `target_heads` are declared now, before anything is trained, and can't be changed."""

    line_id: uuid.UUID
    dataset_version_id: uuid.UUID
    seed: int
    target_heads: Sequence[str]
    start: str = "warm"  # from the champion; "scratch" when there is none
    purpose: str = "challenger"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    freeze_job_id: uuid.UUID | None = None  # the retraining that this run is part of


def start_run(unit: UnitOfWork, request: RunRequest) -> uuid.UUID:
    """Record the run and make its training due, in the caller's transaction.

    Raises DatasetOvertaken when an erasure has taken rows out of the dataset version.
    """
    dataset = unit.session.get_one(DatasetVersion, request.dataset_version_id, with_for_update={"read": True})
    if dataset.erased is not None:
        raise DatasetOvertaken(f"dataset version {dataset.number} has lost rows to an erasure")
    line = get_line(unit.session, request.line_id)
    ontology = ontology_of(unit.session, line.ontology_id)
    for head in request.target_heads:
        ontology.head(head)  # raises OntologyError, naming the heads there are
    plan = {**PLAN, **line.settings.get("training", {}), **request.overrides}
    refuse_commands(plan)
    start = request.start if _can_start_from(unit, line.champion_id, str(plan["trainer"])) else "scratch"
    for setting in ("steps", "learning_rate"):
        plan[setting] = plan.get(setting) or plan[f"{setting}_{start}"]
    run = Run(
        id=new_id(),
        project_id=line.project_id,
        line_id=line.id,
        dataset_version_id=request.dataset_version_id,
        freeze_job_id=request.freeze_job_id,
        purpose=request.purpose,
        trainer=str(plan["trainer"]),
        start=start,
        initial_model_id=line.champion_id if start == "warm" else None,
        sampling={"policy": "each head meets its labels"},
        seed=request.seed,
        target_heads=list(request.target_heads),
        plan=plan,
        state="due",
        progress={},
        metrics={},
    )
    unit.session.add(run)
    unit.session.flush()
    ledger.enqueue(unit, kind="train", project_id=line.project_id, subject_id=run.id, dedupe_key=f"train:{run.id}")
    return run.id


def refuse_commands(training: Mapping[str, Any]) -> None:
    """Raises Invalid where training settings hold a command: who may write settings may not say what runs here."""
    if not isinstance(training.get("trainer", HYDRANET), str) or "command" in training:
        raise Invalid(
            "command-not-allowed",
            "a line's settings name their trainer, and can't bring a command along",
            "have the operator name the command in LONGTAIL_TRAINERS, and say `trainer: NAME` in the settings",
        )


def _can_start_from(unit: UnitOfWork, champion_id: uuid.UUID | None, trainer: str) -> bool:
    """Whether there are weights to start from, which for our own network must be its own."""
    if champion_id is None:
        return False
    format = artifact_of(unit.session, champion_id).format
    return format == ModelFormat.HYDRANET if trainer == HYDRANET else format in STARTABLE


def train(
    database: Database, blobs: BlobStore, trainer: Trainer, lease: ledger.Lease, folder: Path
) -> uuid.UUID | None:
    """Work a train job: returns the model version's id, or none when the run was refused or already over.

    `folder` is this run's own on the worker's disk: an attempt that finds an earlier one's checkpoints goes on there.
    """
    with database.read() as session:
        run = session.get_one(Run, lease.subject_id)
        line = get_line(session, run.line_id)
        ontology = ontology_of(session, line.ontology_id)
        dataset = session.get_one(DatasetVersion, run.dataset_version_id)
        manifest_sha256 = sha256_of(session, dataset.manifest_blob_id)
        initial = model_files(session, blobs, run.initial_model_id) if run.initial_model_id else None
    if run.state not in ("due", "running"):
        with database.unit() as unit:
            ledger.complete(unit, lease)
            unit.commit()
        return None
    header, rows = read(blobs.read(manifest_sha256), held_sha256(dataset))
    with database.unit() as unit:
        ledger.guard(unit, lease)
        unit.session.execute(
            update(Run)
            .where(Run.id == run.id)
            .values(state="running", started_at=func.coalesce(Run.started_at, func.clock_timestamp()))
        )
        unit.commit()
    try:
        _refuse_erased(database, dataset, rows)
        _refuse_golden(database, header, rows)
        trained = trainer.train(
            folder,
            training_plan(run.plan, run.seed, ontology.heads, initial),
            training_samples(blobs, ontology, rows),
            lease.attempt,
            _Heartbeat(database, lease, run.id),
        )
    except TrainingRefused as refused:
        with database.unit() as unit:
            ledger.complete(unit, lease)
            _end(unit, run.id, str(refused))
            unit.commit()
        return None
    except ledger.LeaseLost:
        _forget_erased(database, run, folder)
        raise
    except Exception as crash:
        _forget_erased(database, run, folder)
        # The job dies with its last attempt, and a run that nobody works on must not look as if it were running.
        if lease.attempt >= lease.max_attempts:
            with database.unit() as unit:
                ledger.guard(unit, lease)
                _end(unit, run.id, f"crashed in each of {lease.attempt} attempts, the last time: {crash}")
                unit.commit()
        raise
    with trained.files.weights.open("rb") as source:
        weights = blobs.put(source)
    with database.unit() as unit:
        try:
            ledger.complete(unit, lease)
        except ledger.LeaseLost:
            if _forget_erased(database, run, folder):
                discard(database, blobs, [weights.sha256])
            raise
        form = ModelFormat(trained.files.format)
        blob = register(unit.session, line.project_id, weights, MEDIA_TYPES[form])
        model = add_model(
            unit.session,
            line,
            origin="trained",
            run_id=run.id,
            heads=[head.name for head in trained.files.heads or ontology.heads],
            weights_blob_id=blob.id,
            weights_sha256=weights.sha256,
            config=dict(trained.files.config),
            created_by=f"run {run.id}",
            note="a repeat with another seed, to measure noise" if run.purpose == "noise" else None,
            format=form,
        )
        unit.session.execute(
            update(Run)
            .where(Run.id == run.id)
            .values(state="finished", metrics=dict(trained.metrics), finished_at=func.clock_timestamp())
        )
        _judge_next(unit, get_line(unit.session, line.id), model.id)
        unit.commit()
    shutil.rmtree(folder, ignore_errors=True)
    return model.id


def _forget_erased(database: Database, run: Run, folder: Path) -> bool:
    """Remove the run's folder if something of its dataset was erased; returns whether that is so."""
    with database.read() as session:
        erased = session.get_one(DatasetVersion, run.dataset_version_id).erased is not None
    if erased:
        shutil.rmtree(folder, ignore_errors=True)
    return erased


def _end(unit: UnitOfWork, run_id: uuid.UUID, why: str) -> None:
    unit.session.execute(
        update(Run).where(Run.id == run_id).values(state="refused", failure=why, finished_at=func.clock_timestamp())
    )


def _judge_next(unit: UnitOfWork, line: ModelLine, model_id: uuid.UUID) -> None:
    """Every model that was trained is looked at on the newest golden set of its line, if there is one."""
    golden = newest_golden_set(unit.session, line.id)
    if golden is not None:
        ledger.enqueue(
            unit,
            kind="judge",
            project_id=line.project_id,
            subject_id=model_id,
            dedupe_key=f"judge:{model_id}:{golden.id}:{line.champion_id}",
            payload={"golden_set_id": str(golden.id)},
        )


def _refuse_erased(database: Database, dataset: DatasetVersion, rows: Sequence[ManifestRow]) -> None:
    """Asks the subjects themselves, too: whatever a manifest still says, what was erased is not trained on."""
    subjects = {uuid.UUID(row.subject_id) for row in rows}
    with database.read() as session:
        living = session.scalar(
            select(func.count())
            .select_from(Subject)
            .join(Clip, Clip.id == Subject.clip_id)
            .where(Subject.id == among(subjects), Clip.state != "erased")
        )
    lost = len(subjects) - (living or 0) + (dataset.erased or {}).get("subjects", 0)
    if lost:
        raise ErasedInTraining(
            f"{lost} subjects of dataset version {dataset.number} were erased, and are never trained on: freeze "
            "another one (`longtail retrain`)"
        )


def _refuse_golden(database: Database, header: Mapping[str, Any], rows: Sequence[ManifestRow]) -> None:
    """Asks the subjects themselves: what the manifest's header says of its rows is not enough."""
    subjects = {uuid.UUID(row.subject_id) for row in rows}
    with database.read() as session:
        golden = session.scalar(
            select(func.count()).select_from(Subject).where(Subject.id == among(subjects), Subject.split == "golden")
        )
    if golden or header["split"] == "golden":
        raise GoldenInTraining(
            f"the dataset version holds {golden} golden subjects, which are never trained on: freeze another one"
        )


def training_plan(
    settings: Mapping[str, Any], seed: int, heads: Sequence[Head], initial: ModelFiles | None
) -> TrainingPlan:
    """The plan that a run's recorded settings make; those that no plan has a place for go to the trainer as options."""
    named = {"backbone", "learning_rate", "trainer", *COUNTS}
    return TrainingPlan(
        heads=heads,
        seed=seed,
        steps=int(settings["steps"]),
        batch_size=int(settings["batch_size"]),
        height=int(settings["height"]),
        width=int(settings["width"]),
        backbone=str(settings["backbone"]),
        learning_rate=float(settings["learning_rate"]),
        checkpoint_every=int(settings["checkpoint_every"]),
        threads=int(settings["threads"]),
        trainer=str(settings.get("trainer", HYDRANET)),
        warm_start=initial,
        options={
            name: value
            for name, value in settings.items()
            if name not in named and not name.startswith(("steps_", "learning_rate_"))
        },
    )


def training_samples(blobs: BlobStore, ontology: Ontology, rows: Sequence[ManifestRow]) -> Iterator[TrainingSample]:
    """A manifest's rows as samples, one a subject, their pictures on this machine's disk."""
    for subject, labels in by_subject(rows):
        yield TrainingSample(
            id=subject,
            picture=blobs.local_path(labels[0].picture_sha256),
            labels={row.head: answer_of(blobs, ontology, row) for row in labels},
            annotated_classes={row.head: row.annotated_classes for row in labels if row.annotated_classes is not None},
        )


def answer_of(blobs: BlobStore, ontology: Ontology, row: ManifestRow) -> Answer:
    """The label of a manifest's row."""
    return Answer(
        kind=ontology.head(row.head).kind,
        value=json.loads(row.value),
        array=blobs.read(row.array_sha256) if row.array_sha256 else None,
    )


class _Heartbeat:
    """Keeps the lease, and writes down how far the run is."""

    def __init__(self, database: Database, lease: ledger.Lease, run_id: uuid.UUID) -> None:
        self._database, self._lease, self._run_id = database, lease, run_id

    def __call__(self, progress: TrainingProgress | None = None) -> None:
        ledger.heartbeat(self._database, self._lease)
        if progress is None:
            return
        with self._database.unit() as unit:
            ledger.guard(unit, self._lease)
            unit.session.execute(
                update(Run)
                .where(Run.id == self._run_id)
                .values(progress={"step": progress.step, "steps": progress.steps, "losses": dict(progress.losses)})
            )
            unit.commit()
