"""Dataset versions and golden sets: what they hold, and the manifest that is their content."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from engine.domain.refusals import NotFound
from engine.queries.records import one, page, record
from engine.store.tables.labels import DatasetVersion, GoldenSet, GoldenSubject
from engine.store.tables.models import ModelLine
from engine.store.tables.recordings import Blob, Frame, Stream


def _datasets(project_id: uuid.UUID) -> Select[*tuple[Any, ...]]:
    return (
        select(DatasetVersion, ModelLine.name, Blob.sha256)
        .join(ModelLine, ModelLine.id == DatasetVersion.line_id)
        .join(Blob, Blob.id == DatasetVersion.manifest_blob_id)
        .where(DatasetVersion.project_id == project_id)
    )


def listing(
    session: Session, project_id: uuid.UUID, limit: int, after: uuid.UUID | None = None, line: str | None = None
) -> list[dict[str, Any]]:
    """Dataset versions in the order of their making."""
    query = _datasets(project_id)
    if line is not None:
        query = query.where(ModelLine.name == line)
    return [_dataset(*row) for row in page(session, query, DatasetVersion.id, limit, after)]


def detail(session: Session, project_id: uuid.UUID, dataset_id: uuid.UUID) -> dict[str, Any]:
    """One dataset version. Raises NotFound."""
    query = _datasets(project_id).where(DatasetVersion.id == dataset_id)
    return _dataset(*one(session, query, "dataset", dataset_id, "datasets"))


def _dataset(dataset: DatasetVersion, line: str, manifest_sha256: str) -> dict[str, Any]:
    return record(dataset, line=line, manifest_sha256=manifest_sha256)


def golden_listing(
    session: Session, project_id: uuid.UUID, limit: int, after: uuid.UUID | None = None
) -> list[dict[str, Any]]:
    """Golden sets in the order of their making."""
    subjects = (
        select(func.count()).where(GoldenSubject.golden_set_id == GoldenSet.id).correlate(GoldenSet).scalar_subquery()
    )
    query = (
        select(GoldenSet, ModelLine.name, subjects)
        .join(ModelLine, ModelLine.id == GoldenSet.line_id)
        .where(GoldenSet.project_id == project_id)
    )
    return [
        record(golden, line=line, subjects=count)
        for golden, line, count in page(session, query, GoldenSet.id, limit, after)
    ]


def golden_pictures(
    session: Session, project_id: uuid.UUID, golden_set_id: uuid.UUID, limit: int, after: uuid.UUID | None = None
) -> list[dict[str, Any]]:
    """The pictures of a golden set by their subjects' ids, and nothing of their labels. Raises NotFound."""
    known = session.scalar(
        select(GoldenSet.id).where(GoldenSet.project_id == project_id, GoldenSet.id == golden_set_id)
    )
    if known is None:
        raise NotFound(
            "no-such-golden-set", f"there is no golden set {golden_set_id}", "list them with GET /v1/golden-sets"
        )
    query = (
        select(GoldenSubject.subject_id, Frame.clip_id, Stream.name, Frame.pts, Blob.sha256)
        .join(Frame, Frame.id == GoldenSubject.subject_id)
        .join(Stream, Stream.id == Frame.stream_id)
        .join(Blob, Blob.id == Frame.picture_blob_id)
        .where(GoldenSubject.golden_set_id == golden_set_id)
    )
    return [
        {"id": subject, "clip_id": clip, "stream": stream, "pts": pts, "picture_sha256": sha256}
        for subject, clip, stream, pts, sha256 in page(session, query, GoldenSubject.subject_id, limit, after)
    ]
