"""Model lines, versions, runs and gate reports."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from engine.queries.records import of_project, one, page, record
from engine.store.tables.models import (
    GateReport,
    ModelArtifact,
    ModelLine,
    ModelVersion,
    OntologyVersion,
    Run,
)
from engine.store.tables.recordings import Blob


def ontologies(
    session: Session, project_id: uuid.UUID, limit: int, after: uuid.UUID | None = None
) -> list[dict[str, Any]]:
    """Ontology versions in the order of their making."""
    rows = page(session, of_project(OntologyVersion, project_id), OntologyVersion.id, limit, after)
    return [record(row[0]) for row in rows]


def ontology(session: Session, project_id: uuid.UUID, ontology_id: uuid.UUID) -> dict[str, Any]:
    """One ontology version. Raises NotFound."""
    query = of_project(OntologyVersion, project_id).where(OntologyVersion.id == ontology_id)
    return record(one(session, query, "ontology", ontology_id, "ontologies")[0])


def _lines(project_id: uuid.UUID) -> Select[*tuple[Any, ...]]:
    return (
        select(ModelLine, OntologyVersion.name, OntologyVersion.version, ModelVersion.number)
        .join(OntologyVersion, OntologyVersion.id == ModelLine.ontology_id)
        .outerjoin(ModelVersion, ModelVersion.id == ModelLine.champion_id)
        .where(ModelLine.project_id == project_id)
    )


def lines(session: Session, project_id: uuid.UUID, limit: int, after: uuid.UUID | None = None) -> list[dict[str, Any]]:
    """Model lines in the order of their making."""
    return [_line(*row) for row in page(session, _lines(project_id), ModelLine.id, limit, after)]


def line(session: Session, project_id: uuid.UUID, line_id: uuid.UUID) -> dict[str, Any]:
    """One model line. Raises NotFound."""
    return _line(*one(session, _lines(project_id).where(ModelLine.id == line_id), "line", line_id, "lines"))


def _line(row: ModelLine, ontology_name: str, version: int, champion: int | None) -> dict[str, Any]:
    return record(row, ontology={"name": ontology_name, "version": version}, champion_number=champion)


def _versions(project_id: uuid.UUID) -> Select[*tuple[Any, ...]]:
    return (
        select(ModelVersion, ModelLine.name, ModelLine.champion_id)
        .join(ModelLine, ModelLine.id == ModelVersion.line_id)
        .where(ModelVersion.project_id == project_id)
    )


def versions(
    session: Session, project_id: uuid.UUID, limit: int, after: uuid.UUID | None = None, line: str | None = None
) -> list[dict[str, Any]]:
    """Model versions in the order of their making."""
    query = _versions(project_id)
    if line is not None:
        query = query.where(ModelLine.name == line)
    return [_version(*row) for row in page(session, query, ModelVersion.id, limit, after)]


def version(session: Session, project_id: uuid.UUID, model_id: uuid.UUID) -> dict[str, Any]:
    """One model version with its artifacts. Raises NotFound."""
    found = one(session, _versions(project_id).where(ModelVersion.id == model_id), "model", model_id, "models")
    artifacts = session.execute(
        select(ModelArtifact, Blob.sha256, Blob.size_bytes)
        .join(Blob, Blob.id == ModelArtifact.blob_id)
        .where(ModelArtifact.model_version_id == model_id)
        .order_by(ModelArtifact.id)
    )
    return _version(*found) | {
        "artifacts": [record(row, sha256=sha256, size_bytes=size) for row, sha256, size in artifacts]
    }


def _version(row: ModelVersion, line_name: str, champion_id: uuid.UUID | None) -> dict[str, Any]:
    return record(row, line=line_name, is_champion=row.id == champion_id)


def _runs(project_id: uuid.UUID) -> Select[*tuple[Any, ...]]:
    return (
        select(Run, ModelLine.name, ModelVersion.id)
        .join(ModelLine, ModelLine.id == Run.line_id)
        .outerjoin(ModelVersion, ModelVersion.run_id == Run.id)
        .where(Run.project_id == project_id)
    )


def runs(
    session: Session,
    project_id: uuid.UUID,
    limit: int,
    after: uuid.UUID | None = None,
    line: str | None = None,
    state: str | None = None,
) -> list[dict[str, Any]]:
    """Runs in the order of their making, with the model version that each became."""
    query = _runs(project_id)
    if line is not None:
        query = query.where(ModelLine.name == line)
    if state is not None:
        query = query.where(Run.state == state)
    return [_run(*row) for row in page(session, query, Run.id, limit, after)]


def run(session: Session, project_id: uuid.UUID, run_id: uuid.UUID) -> dict[str, Any]:
    """One run. Raises NotFound."""
    return _run(*one(session, _runs(project_id).where(Run.id == run_id), "run", run_id, "runs"))


def _run(row: Run, line_name: str, model_id: uuid.UUID | None) -> dict[str, Any]:
    return record(row, line=line_name, model_version_id=model_id)


def _reports(project_id: uuid.UUID) -> Select[*tuple[Any, ...]]:
    return (
        select(GateReport, ModelLine.name, ModelVersion.number)
        .join(ModelLine, ModelLine.id == GateReport.line_id)
        .join(ModelVersion, ModelVersion.id == GateReport.challenger_id)
        .where(GateReport.project_id == project_id)
    )


def gate_reports(
    session: Session,
    project_id: uuid.UUID,
    limit: int,
    after: uuid.UUID | None = None,
    line: str | None = None,
    model_id: uuid.UUID | None = None,
    verdict: str | None = None,
    newest_first: bool = False,
) -> list[dict[str, Any]]:
    """Gate reports in the order of their making, or backwards."""
    query = _reports(project_id)
    if line is not None:
        query = query.where(ModelLine.name == line)
    if model_id is not None:
        query = query.where(GateReport.challenger_id == model_id)
    if verdict is not None:
        query = query.where(GateReport.verdict == verdict)
    return [_report(*row) for row in page(session, query, GateReport.id, limit, after, newest_first)]


def gate_report(session: Session, project_id: uuid.UUID, report_id: uuid.UUID) -> dict[str, Any]:
    """One gate report, whole. Raises NotFound."""
    query = _reports(project_id).where(GateReport.id == report_id)
    return _report(*one(session, query, "gate report", report_id, "gate-reports"))


def _report(row: GateReport, line_name: str, number: int) -> dict[str, Any]:
    return record(row, line=line_name, challenger_number=number)
