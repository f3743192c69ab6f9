"""Gate reports with the lineage of what they judged, and a line's history of them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session, aliased

from engine.queries.records import one
from engine.store.tables.labels import DatasetLabel, DatasetVersion, GoldenSet, GoldenSubject
from engine.store.tables.models import GateReport, ModelLine, ModelVersion, Promotion, Run, SeedNoise


@dataclass(frozen=True)
class Judged:
    """A gate report, who was compared on what, and where the challenger came from."""

    report: GateReport
    line: str
    champion_now: uuid.UUID | None
    challenger: ModelVersion
    champion_number: int | None
    golden: GoldenSet
    run: Run | None
    dataset: DatasetVersion | None
    promotion: Promotion | None

    @property
    def rows(self) -> Sequence[dict[str, Any]]:
        """The comparisons over the whole golden set, one a head."""
        return [row for row in self.report.report.get("rows", ()) if row["slice"] is None]

    @property
    def slices(self) -> Sequence[dict[str, Any]]:
        return [row for row in self.report.report.get("rows", ()) if row["slice"] is not None]


@dataclass(frozen=True)
class Noise:
    """What a head's margin was measured from: groups of values that differ in the run's seed alone."""

    head: str
    groups: Sequence[Sequence[float]]
    measured_at: datetime


def listing(
    session: Session,
    project_id: uuid.UUID,
    *,
    limit: int,
    before: uuid.UUID | None = None,
    line_id: uuid.UUID | None = None,
    verdict: str | None = None,
) -> list[Judged]:
    """Reports, the newest first; those older than `before`."""
    query = _judged(project_id).order_by(GateReport.id.desc()).limit(limit)
    if before is not None:
        query = query.where(GateReport.id < before)
    if line_id is not None:
        query = query.where(GateReport.line_id == line_id)
    if verdict is not None:
        query = query.where(GateReport.verdict == verdict)
    return [Judged(*row) for row in session.execute(query)]


def detail(session: Session, project_id: uuid.UUID, report_id: uuid.UUID) -> Judged:
    """One report. Raises NotFound."""
    query = _judged(project_id).where(GateReport.id == report_id)
    return Judged(*one(session, query, "gate report", report_id, "gate-reports"))


def of_model(session: Session, project_id: uuid.UUID, model_id: uuid.UUID) -> list[Judged]:
    """The reports on a model version, as the challenger or the champion, the newest first."""
    query = _judged(project_id).where((GateReport.challenger_id == model_id) | (GateReport.champion_id == model_id))
    return [Judged(*row) for row in session.execute(query.order_by(GateReport.id.desc()))]


def noise(session: Session, line_id: uuid.UUID, golden_set_id: uuid.UUID) -> list[Noise]:
    """What is known of the noise between seeds, by head."""
    rows = session.scalars(
        select(SeedNoise)
        .where(SeedNoise.line_id == line_id, SeedNoise.golden_set_id == golden_set_id)
        .order_by(SeedNoise.head)
    )
    return [Noise(row.head, row.values, row.measured_at) for row in rows]


def label_count(session: Session, dataset_id: uuid.UUID) -> int:
    """How many labels a dataset version holds, counted in its rows."""
    return session.scalar(select(func.count()).where(DatasetLabel.dataset_version_id == dataset_id)) or 0


def golden_count(session: Session, golden_set_id: uuid.UUID) -> int:
    """How many subjects a golden set holds."""
    return session.scalar(select(func.count()).where(GoldenSubject.golden_set_id == golden_set_id)) or 0


def _judged(project_id: uuid.UUID) -> Select[*tuple[Any, ...]]:
    champion = aliased(ModelVersion)
    newest_move = (
        select(Promotion.id)
        .where(Promotion.gate_report_id == GateReport.id)
        .order_by(Promotion.id.desc())
        .limit(1)
        .correlate(GateReport)
        .scalar_subquery()
    )
    return (
        select(
            GateReport,
            ModelLine.name,
            ModelLine.champion_id,
            ModelVersion,
            champion.number,
            GoldenSet,
            Run,
            DatasetVersion,
            Promotion,
        )
        .join(ModelLine, ModelLine.id == GateReport.line_id)
        .join(ModelVersion, ModelVersion.id == GateReport.challenger_id)
        .outerjoin(champion, champion.id == GateReport.champion_id)
        .join(GoldenSet, GoldenSet.id == GateReport.golden_set_id)
        .outerjoin(Run, Run.id == ModelVersion.run_id)
        .outerjoin(DatasetVersion, DatasetVersion.id == Run.dataset_version_id)
        .outerjoin(Promotion, Promotion.id == newest_move)
        .where(GateReport.project_id == project_id)
    )
