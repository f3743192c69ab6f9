"""Model versions with their lineage both ways, runs and dataset versions with what was made of them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from engine.queries.records import one
from engine.store.tables.labels import DatasetSubject, DatasetVersion, GoldenSet
from engine.store.tables.models import (
    GateReport,
    GoldenEvidence,
    ModelLine,
    ModelVersion,
    Promotion,
    Run,
    Scoring,
)
from engine.store.tables.recordings import Blob, Clip, Drive, Subject, Vehicle


@dataclass(frozen=True)
class Version:
    """A model version, what made it, and the newest verdict on it."""

    model: ModelVersion
    line: ModelLine
    run: Run | None
    dataset: DatasetVersion | None
    report: GateReport | None
    metrics: dict[str, float]

    @property
    def is_champion(self) -> bool:
        return self.line.champion_id == self.model.id


@dataclass(frozen=True)
class Move:
    """A move of a champion, with the numbers of the versions."""

    promotion: Promotion
    from_number: int | None
    to_number: int


def versions(session: Session, project_id: uuid.UUID, limit: int, before: uuid.UUID | None = None) -> list[Version]:
    """Model versions, the newest first, each with its metrics on its line's newest golden set."""
    query = _versions(project_id).order_by(ModelVersion.id.desc()).limit(limit)
    if before is not None:
        query = query.where(ModelVersion.id < before)
    return [_version(row) for row in session.execute(query)]


def version(session: Session, project_id: uuid.UUID, model_id: uuid.UUID) -> Version:
    """One model version. Raises NotFound."""
    row = one(session, _versions(project_id).where(ModelVersion.id == model_id), "model", model_id, "models")
    return _version(row)


def moves(session: Session, line_id: uuid.UUID) -> list[Move]:
    """The moves of a line's champion, the newest first."""
    earlier = (
        select(ModelVersion.number).where(ModelVersion.id == Promotion.from_model_id).correlate(Promotion)
    ).scalar_subquery()
    rows = session.execute(
        select(Promotion, earlier, ModelVersion.number)
        .join(ModelVersion, ModelVersion.id == Promotion.to_model_id)
        .where(Promotion.line_id == line_id)
        .order_by(Promotion.at.desc(), Promotion.id.desc())
    )
    return [Move(*row) for row in rows]


def numbers_of(session: Session, model_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, int]:
    """The numbers of model versions, by id."""
    rows = session.execute(select(ModelVersion.id, ModelVersion.number).where(ModelVersion.id.in_(model_ids)))
    return {identity: number for identity, number in rows}


def clips_scored(session: Session, model_id: uuid.UUID) -> int:
    """How many clips a model version has scored."""
    return session.scalar(select(func.count()).where(Scoring.model_version_id == model_id)) or 0


def trained_from(session: Session, model_id: uuid.UUID) -> list[tuple[uuid.UUID, int]]:
    """Versions whose run started from this one's weights: (id, number)."""
    rows = session.execute(
        select(ModelVersion.id, ModelVersion.number)
        .join(Run, Run.id == ModelVersion.run_id)
        .where(Run.initial_model_id == model_id)
        .order_by(ModelVersion.number)
    )
    return [(identity, number) for identity, number in rows]


@dataclass(frozen=True)
class RunView:
    """A run, what it trained on, and the version that it became."""

    run: Run
    line: str
    dataset: DatasetVersion
    model: ModelVersion | None
    initial_number: int | None


def runs(session: Session, project_id: uuid.UUID, limit: int, before: uuid.UUID | None = None) -> list[RunView]:
    """Runs, the newest first."""
    query = _runs(project_id).order_by(Run.id.desc()).limit(limit)
    if before is not None:
        query = query.where(Run.id < before)
    return [RunView(*row) for row in session.execute(query)]


def run(session: Session, project_id: uuid.UUID, run_id: uuid.UUID) -> RunView:
    """One run. Raises NotFound."""
    return RunView(*one(session, _runs(project_id).where(Run.id == run_id), "run", run_id, "runs"))


def runs_on(session: Session, project_id: uuid.UUID, dataset_id: uuid.UUID) -> list[RunView]:
    """Runs that trained on a dataset version."""
    query = _runs(project_id).where(Run.dataset_version_id == dataset_id).order_by(Run.id)
    return [RunView(*row) for row in session.execute(query)]


@dataclass(frozen=True)
class Dataset:
    """A dataset version and the size of its manifest in bytes."""

    version: DatasetVersion
    line: str
    manifest_bytes: int


def datasets(session: Session, project_id: uuid.UUID, limit: int, before: uuid.UUID | None = None) -> list[Dataset]:
    """Dataset versions, the newest first."""
    query = _datasets(project_id).order_by(DatasetVersion.id.desc()).limit(limit)
    if before is not None:
        query = query.where(DatasetVersion.id < before)
    return [Dataset(*row) for row in session.execute(query)]


def dataset(session: Session, project_id: uuid.UUID, dataset_id: uuid.UUID) -> Dataset:
    """One dataset version. Raises NotFound."""
    query = _datasets(project_id).where(DatasetVersion.id == dataset_id)
    return Dataset(*one(session, query, "dataset", dataset_id, "datasets"))


def clips_of_dataset(session: Session, dataset_id: uuid.UUID, limit: int) -> Sequence[tuple[Any, ...]]:
    """(clip id, clip, drive, vehicle, subjects of it) of a dataset version, those with most subjects first."""
    subjects = func.count()
    rows = session.execute(
        select(Clip.id, Clip.external_id, Drive.external_id, Vehicle.external_id, subjects)
        .select_from(DatasetSubject)
        .join(Subject, Subject.id == DatasetSubject.subject_id)
        .join(Clip, Clip.id == Subject.clip_id)
        .join(Drive, Drive.id == Clip.drive_id)
        .join(Vehicle, Vehicle.id == Clip.vehicle_id)
        .where(DatasetSubject.dataset_version_id == dataset_id)
        .group_by(Clip.id, Drive.id, Vehicle.id)
        .order_by(subjects.desc(), Clip.id)
        .limit(limit)
    )
    return [tuple(row) for row in rows]


def _version(row: Any) -> Version:
    model, line, run_row, dataset_row, report, metrics = row
    return Version(model, line, run_row, dataset_row, report, metrics or {})


def _versions(project_id: uuid.UUID) -> Select[*tuple[Any, ...]]:
    newest_report = (
        select(GateReport.id)
        .where(GateReport.challenger_id == ModelVersion.id)
        .order_by(GateReport.id.desc())
        .limit(1)
        .correlate(ModelVersion)
        .scalar_subquery()
    )
    newest_golden = (
        select(GoldenSet.id)
        .where(GoldenSet.line_id == ModelVersion.line_id)
        .order_by(GoldenSet.id.desc())
        .limit(1)
        .correlate(ModelVersion)
        .scalar_subquery()
    )
    return (
        select(ModelVersion, ModelLine, Run, DatasetVersion, GateReport, GoldenEvidence.metrics)
        .join(ModelLine, ModelLine.id == ModelVersion.line_id)
        .outerjoin(Run, Run.id == ModelVersion.run_id)
        .outerjoin(DatasetVersion, DatasetVersion.id == Run.dataset_version_id)
        .outerjoin(GateReport, GateReport.id == newest_report)
        .outerjoin(
            GoldenEvidence,
            (GoldenEvidence.model_version_id == ModelVersion.id) & (GoldenEvidence.golden_set_id == newest_golden),
        )
        .where(ModelVersion.project_id == project_id)
    )


def _runs(project_id: uuid.UUID) -> Select[*tuple[Any, ...]]:
    initial = (
        select(ModelVersion.number).where(ModelVersion.id == Run.initial_model_id).correlate(Run).scalar_subquery()
    )
    return (
        select(Run, ModelLine.name, DatasetVersion, ModelVersion, initial)
        .join(ModelLine, ModelLine.id == Run.line_id)
        .join(DatasetVersion, DatasetVersion.id == Run.dataset_version_id)
        .outerjoin(ModelVersion, ModelVersion.run_id == Run.id)
        .where(Run.project_id == project_id)
    )


def _datasets(project_id: uuid.UUID) -> Select[*tuple[Any, ...]]:
    return (
        select(DatasetVersion, ModelLine.name, Blob.size_bytes)
        .join(ModelLine, ModelLine.id == DatasetVersion.line_id)
        .join(Blob, Blob.id == DatasetVersion.manifest_blob_id)
        .where(DatasetVersion.project_id == project_id)
    )
