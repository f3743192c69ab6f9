"""Labels, current ones and earlier revisions."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from engine.queries.records import one, page, record
from engine.store.tables.labels import Label
from engine.store.tables.models import OntologyVersion
from engine.store.tables.recordings import Blob, Frame, Stream, Subject


def _labels(project_id: uuid.UUID) -> Select[*tuple[Any, ...]]:
    return (
        select(
            Label, OntologyVersion.name, OntologyVersion.version, Subject.clip_id, Stream.name, Frame.pts, Blob.sha256
        )
        .join(OntologyVersion, OntologyVersion.id == Label.ontology_id)
        .join(Subject, Subject.id == Label.subject_id)
        .outerjoin(Frame, Frame.id == Subject.frame_id)
        .outerjoin(Stream, Stream.id == Frame.stream_id)
        .outerjoin(Blob, Blob.id == Label.array_blob_id)
        .where(Label.project_id == project_id)
    )


def listing(
    session: Session,
    project_id: uuid.UUID,
    *,
    limit: int,
    after: uuid.UUID | None = None,
    head: str | None = None,
    source: str | None = None,
    clip_id: uuid.UUID | None = None,
    subject_id: uuid.UUID | None = None,
    all_revisions: bool = False,
) -> list[dict[str, Any]]:
    """Labels in the order of their making; the current ones, or with `all_revisions` those that were superseded too."""
    query = _labels(project_id)
    if head is not None:
        query = query.where(Label.head == head)
    if source is not None:
        query = query.where(Label.source == source)
    if clip_id is not None:
        query = query.where(Subject.clip_id == clip_id)
    if subject_id is not None:
        query = query.where(Label.subject_id == subject_id)
    if not all_revisions:
        query = query.where(Label.superseded_by_id.is_(None))
    return [_label(*row) for row in page(session, query, Label.id, limit, after)]


def detail(session: Session, project_id: uuid.UUID, label_id: uuid.UUID) -> dict[str, Any]:
    """One label, whatever its revision. Raises NotFound."""
    return _label(*one(session, _labels(project_id).where(Label.id == label_id), "label", label_id, "labels"))


def _label(
    label: Label,
    ontology: str,
    version: int,
    clip_id: uuid.UUID,
    stream: str | None,
    pts: int | None,
    array_sha256: str | None,
) -> dict[str, Any]:
    return record(
        label,
        ontology={"name": ontology, "version": version},
        clip_id=clip_id,
        stream=stream,
        pts=pts,
        array_sha256=array_sha256,
    )
