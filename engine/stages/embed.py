"""Embed: each scored frame gets its place in the line's embedding space, also where its scores came from elsewhere."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.domain.formats import ModelFormat
from engine.jobs import ledger
from engine.ports import BlobStore, FrameReader, ModelFiles, Picture, Scorer
from engine.store.blobs import sha256_of
from engine.store.lines import model_files
from engine.store.living import hold_clips
from engine.store.tables.models import Embedding, EmbeddingSpace, ModelLine, ModelVersion, Score, Scoring
from engine.store.tables.recordings import Clip, Frame, Stream
from engine.store.unit_of_work import Database

BATCH = 16


@dataclass(frozen=True)
class Sampled:
    """A frame that is to be scored, known before it is decoded."""

    id: uuid.UUID
    stream: Stream
    pts: int


def embed_scored(
    database: Database,
    blobs: BlobStore,
    reader: FrameReader,
    scorer: Scorer,
    clip: Clip,
    model: ModelVersion,
    line: ModelLine,
    lease: ledger.Lease,
) -> int:
    """Work a score job of a clip that needs no scores: those of its scored frames that have no place in the line's
    space get one. Returns how many did."""
    with database.read() as session:
        pinned = session.get(EmbeddingSpace, line.embedding_space_id) if line.embedding_space_id else None
        frames = _without(session, clip.id, model.id, pinned.id) if pinned else []
        trunk = model_files(session, blobs, pinned.model_version_id) if pinned and frames else None
        sources = {f.stream.id: sha256_of(session, f.stream.blob_id) for f in frames}
    vectors: dict[uuid.UUID, tuple[float, ...]] = {}
    if trunk is not None and trunk.format != ModelFormat.PREDICTIONS:
        for batch, pictures in pictures_of(blobs, reader, sources, frames):
            found = scorer.embed(trunk, pictures)
            vectors.update({frame.id: vector for frame, vector in zip(batch, found, strict=True)})
    with database.unit() as unit:
        if not hold_clips(unit.session, [clip.id]):
            return 0  # erased meanwhile, and its job with it
        ledger.complete(unit, lease)
        record_embeddings(unit.session, clip, pinned.id if pinned else None, vectors)
        unit.commit()
    return len(vectors)


def _without(session: Session, clip_id: uuid.UUID, model_id: uuid.UUID, space_id: uuid.UUID) -> list[Sampled]:
    scored = (
        select(Score.subject_id)
        .join(Scoring, Scoring.id == Score.scoring_id)
        .where(Scoring.clip_id == clip_id, Scoring.model_version_id == model_id)
    )
    placed = select(Embedding.subject_id).where(Embedding.space_id == space_id)
    rows = session.execute(
        select(Frame.id, Stream, Frame.pts)
        .join(Stream, Stream.id == Frame.stream_id)
        .where(Frame.clip_id == clip_id, Frame.id.in_(scored), Frame.id.not_in(placed))
        .order_by(Frame.stream_id, Frame.pts)
    )
    return [Sampled(subject, stream, pts) for subject, stream, pts in rows]


def space_of(
    session: Session, blobs: BlobStore, line: ModelLine, model: ModelVersion
) -> tuple[uuid.UUID | None, ModelFiles | None]:
    """The line's embedding space, and the trunk it is pinned to where that is another model's than the scoring one.

    None where that other one can't be asked: then nothing new is embedded.
    """
    if line.embedding_space_id is None:
        return None, None
    space = session.get_one(EmbeddingSpace, line.embedding_space_id)
    if space.model_version_id == model.id:
        return space.id, None
    trunk = model_files(session, blobs, space.model_version_id)
    return (None, None) if trunk.format == ModelFormat.PREDICTIONS else (space.id, trunk)


def embedded_of(session: Session, space: uuid.UUID | None, frames: Sequence[Sampled]) -> set[uuid.UUID]:
    """Those of these frames that have a place in the space."""
    if space is None:
        return set()
    return set(
        session.scalars(
            select(Embedding.subject_id).where(
                Embedding.space_id == space, Embedding.subject_id.in_([frame.id for frame in frames])
            )
        )
    )


def pictures_of(
    blobs: BlobStore, reader: FrameReader, sources: Mapping[uuid.UUID, str], frames: Sequence[Sampled]
) -> Iterator[tuple[list[Sampled], list[Picture]]]:
    """Batches of frames with their pictures, stream by stream, each clip decoded once."""
    for stream_id, sha256 in sources.items():
        wanted = {frame.pts: frame for frame in frames if frame.stream.id == stream_id}
        batch: list[Sampled] = []
        pictures: list[Picture] = []
        for picture in reader.frames(blobs.local_path(sha256), sorted(wanted)):
            batch.append(wanted[picture.pts])
            pictures.append(picture)
            if len(batch) == BATCH:
                yield batch, pictures
                batch, pictures = [], []
        if batch:
            yield batch, pictures


def record_embeddings(
    session: Session, clip: Clip, space: uuid.UUID | None, vectors: Mapping[uuid.UUID, tuple[float, ...]]
) -> None:
    """What has a place already keeps it."""
    if space is None or not vectors:
        return
    rows = [
        {"space_id": space, "subject_id": subject, "project_id": clip.project_id, "vector": list(vector)}
        for subject, vector in vectors.items()
    ]
    session.execute(insert(Embedding).on_conflict_do_nothing(), rows)
