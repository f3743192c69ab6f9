"""Where a frame's picture is to be had, and where a model's predictions for it lie."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from engine.domain.ontology import Ontology
from engine.domain.refusals import NotFound
from engine.queries.records import one
from engine.store.tables.models import ModelVersion, OntologyVersion, Score, Scoring
from engine.store.tables.recordings import Blob, Clip, Frame, Stream, Subject


@dataclass(frozen=True)
class PictureSource:
    """A frame's pinned picture, or the stream's recording and the PTS in it where it was not pinned yet."""

    picture_sha256: str | None
    stream_sha256: str | None
    pts: int


@dataclass(frozen=True)
class PredictionSource:
    """The blob that holds what a model version said of a subject, and how unsure it was by head: (raw, quantile)."""

    predictions_sha256: str
    model_id: uuid.UUID
    model_number: int
    ontology: Ontology
    scores: dict[str, tuple[float, float]]


def picture_source(session: Session, project_id: uuid.UUID, frame_id: uuid.UUID) -> PictureSource:
    """Raises NotFound, for a clip that was erased too."""
    pinned, recorded = aliased(Blob), aliased(Blob)
    query = (
        select(pinned.sha256, recorded.sha256, Frame.pts)
        .join(Stream, Stream.id == Frame.stream_id)
        .join(Clip, Clip.id == Frame.clip_id)
        .join(recorded, recorded.id == Stream.blob_id)
        .outerjoin(pinned, pinned.id == Frame.picture_blob_id)
        .where(Frame.project_id == project_id, Frame.id == frame_id, Clip.state != "erased")
    )
    return PictureSource(*one(session, query, "frame", frame_id, "clips"))


def prediction_source(
    session: Session, project_id: uuid.UUID, subject_id: uuid.UUID, model_id: uuid.UUID | None = None
) -> PredictionSource:
    """What the model version said of the subject; the newest that scored it where none is named. Raises NotFound."""
    query = (
        select(Scoring, Blob.sha256, ModelVersion.number, OntologyVersion.document)
        .join(Subject, Subject.clip_id == Scoring.clip_id)
        .join(Blob, Blob.id == Scoring.predictions_blob_id)
        .join(ModelVersion, ModelVersion.id == Scoring.model_version_id)
        .join(OntologyVersion, OntologyVersion.id == ModelVersion.ontology_id)
        .join(Clip, Clip.id == Scoring.clip_id)
        .where(Subject.id == subject_id, Subject.project_id == project_id, Clip.state != "erased")
        .order_by(Scoring.id.desc())
        .limit(1)
    )
    if model_id is not None:
        query = query.where(Scoring.model_version_id == model_id)
    row = session.execute(query).one_or_none()
    if row is None:
        raise NotFound("no-predictions", f"no model has scored subject {subject_id} yet", "wait for its score job")
    scoring, sha256, number, document = row
    scores = session.execute(
        select(Score.head, Score.raw, Score.quantile).where(
            Score.scoring_id == scoring.id, Score.subject_id == subject_id
        )
    )
    return PredictionSource(
        sha256,
        scoring.model_version_id,
        number,
        Ontology.from_document(document),
        {head: (raw, quantile) for head, raw, quantile in scores},
    )
