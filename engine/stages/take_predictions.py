"""Take predictions: what a model version said elsewhere, recorded as if it had been asked here."""

from __future__ import annotations

import hashlib
import math
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.domain.answers import AnswerError, check_prediction
from engine.domain.formats import ModelFormat
from engine.domain.ids import frame_id
from engine.domain.ontology import Head
from engine.domain.refusals import Conflict, Invalid, NotFound
from engine.jobs import ledger
from engine.ports import BlobStore, FrameScore
from engine.stages.discard import discard
from engine.stages.embed import record_embeddings
from engine.stages.import_labels import check_array
from engine.stages.look import GoldenOvertaken, golden_of, record_look
from engine.stages.score import move_selection, record_scores, reference_of
from engine.store import audit
from engine.store import evidence as evidence_store
from engine.store.blobs import register, sha256_of
from engine.store.lines import artifact_of, get_line, ontology_of
from engine.store.living import hold_clips
from engine.store.predictions import MEDIA_TYPE, Prediction, write
from engine.store.recordings import ensure_frames
from engine.store.tables.labels import GoldenSet
from engine.store.tables.metadata import new_id
from engine.store.tables.models import Embedding, EmbeddingSpace, ModelLine, ModelVersion, Scoring
from engine.store.tables.recordings import Clip, Stream
from engine.store.unit_of_work import Database, UnitOfWork

DIMENSIONS = 128
HINT = "correct it and send it again; nothing of this request was recorded"


@dataclass(frozen=True)
class FramePrediction:
    """What was said of one frame. `score.embedding` is empty where none was sent."""

    stream: str
    pts: int
    score: FrameScore


@dataclass(frozen=True)
class Taken:
    """`created` is False where the very same was recorded before."""

    created: bool
    subjects: int
    embeddings: int
    scoring_id: uuid.UUID | None = None


@dataclass(frozen=True)
class _Model:
    """A model version with what its predictions are held against."""

    row: ModelVersion
    line: ModelLine
    format: str
    heads: Mapping[str, Head]


def take_predictions(
    database: Database,
    blobs: BlobStore,
    project_id: uuid.UUID,
    model_id: uuid.UUID,
    clip_id: uuid.UUID,
    frames: Sequence[FramePrediction],
    actor: str,
) -> Taken:
    """Record what a model version said of a clip's frames: scores, predictions and embeddings, all of it or nothing.

    The same again changes nothing. Raises NotFound; Invalid for frames that are not the clip's, answers that are not
    the heads' and embeddings that are none; Conflict where it said something else of the clip before, for a golden
    clip, and for a model version without a reference.
    """
    started = time.monotonic()
    with database.read() as session:
        model = _model(session, project_id, model_id)
        clip = session.scalars(select(Clip).where(Clip.project_id == project_id, Clip.id == clip_id)).one_or_none()
        if clip is None:
            raise NotFound("no-such-clip", f"there is no clip {clip_id}", "name it by the id that its answer gave")
        if clip.split == "golden":
            raise Conflict(
                "golden-clip",
                f"clip {clip_id} is golden: what is scored can be chosen, and it is for judging alone",
                "send what the model says of a golden set with POST /v1/golden-sets/{id}/predictions",
            )
        if clip.state not in ("received", "scored"):
            raise Conflict("clip-gone", f"clip {clip_id} is {clip.state}", "send predictions of clips that are there")
        streams = {s.name: s for s in session.scalars(select(Stream).where(Stream.clip_id == clip.id))}
    scores = _checked(model, clip, streams, frames)
    reference = reference_of(model.row)
    content = write(_predictions(model, {str(subject): score for subject, score in scores.items()}))
    stored = blobs.put(content)
    with database.unit() as unit:
        session = unit.session
        if hold_clips(session, [clip.id]):
            scoring_id = session.execute(
                insert(Scoring)
                .values(
                    id=new_id(),
                    project_id=project_id,
                    clip_id=clip.id,
                    model_version_id=model.row.id,
                    predictions_blob_id=register(session, project_id, stored, MEDIA_TYPE).id,
                    seconds=time.monotonic() - started,
                )
                .on_conflict_do_nothing(index_elements=["clip_id", "model_version_id"])
                .returning(Scoring.id)
            ).scalar_one_or_none()
            vectors = {subject: score.embedding for subject, score in scores.items() if score.embedding}
            if scoring_id is None:
                try:
                    return _replayed(session, model, clip, stored.sha256, vectors, len(scores))
                except Conflict:
                    discard(database, blobs, [stored.sha256])
                    raise
            for name, pts in _by_stream(frames).items():
                ensure_frames(session, clip, streams[name], pts)
            record_scores(session, clip, scoring_id, scores, reference)
            if vectors:
                record_embeddings(session, clip, _own_space(session, model.row), vectors)
            session.execute(update(Clip).where(Clip.id == clip.id, Clip.state == "received").values(state="scored"))
            _embed_too(unit, model, clip)
            move_selection(unit, model.line.id)
            audit.note(
                session, project_id, actor, "send predictions", "clip", clip.id, {"model_version": str(model.row.id)}
            )
            unit.commit()
            return Taken(True, len(scores), len(vectors), scoring_id)
    discard(database, blobs, [stored.sha256])
    raise Conflict("clip-gone", f"clip {clip_id} was erased meanwhile", "send predictions of clips that are there")


def take_golden_predictions(
    database: Database,
    blobs: BlobStore,
    project_id: uuid.UUID,
    model_id: uuid.UUID,
    golden_set_id: uuid.UUID,
    scores: Mapping[uuid.UUID, FrameScore],
    actor: str,
) -> Taken:
    """Record what a model version that can't be asked here said of a golden set's subjects; the gate judges it by that.

    A subject that is left out counts as answered wrong. The same again changes nothing. Raises NotFound; Invalid;
    Conflict where it said something else before, and for a model version that the gate asks itself.
    """
    with database.read() as session:
        model = _model(session, project_id, model_id)
        golden_row = session.scalars(
            select(GoldenSet).where(
                GoldenSet.project_id == project_id,
                GoldenSet.id == golden_set_id,
                GoldenSet.line_id == model.line.id,
            )
        ).one_or_none()
        if golden_row is None:
            raise NotFound(
                "no-such-golden-set",
                f"there is no golden set {golden_set_id} of line {model.line.name!r}",
                "list them with GET /v1/golden-sets",
            )
        if model.format != ModelFormat.PREDICTIONS:
            raise Conflict(
                "model-is-asked",
                f"version {model.row.number} is here, and the gate asks it itself",
                f"have it judged: POST /v1/models/{model_id}:judge",
            )
        ontology = ontology_of(session, model.row.ontology_id)
        golden = golden_of(session, blobs, golden_row, model.line)
        known = {subject.id for subject in golden.subjects}
    for subject, score in scores.items():
        if str(subject) not in known:
            raise Invalid("invalid-prediction", f"subject {subject} is not in the golden set", HINT)
        _check(f"subject {subject}", model, score)
    order = {str(s): scores[s] for s in sorted(scores, key=str)}
    predictions = list(_predictions(model, order))
    sha256 = hashlib.sha256(write(predictions)).hexdigest()
    created = not _looked_at(database, model, golden_set_id)
    if created:
        try:
            record_look(database, blobs, model.row, ontology, model.line, golden, predictions)
        except GoldenOvertaken as overtaken:
            raise Conflict(
                "golden-overtaken", str(overtaken), "send the answers for the pictures that are left"
            ) from overtaken
    kept = _looked_at(database, model, golden_set_id)
    if kept != sha256:
        raise Conflict(
            "predictions-differ",
            f"version {model.row.number} said something else of this golden set before",
            "a version's answers can't change: register the changed model as a version of its own",
        )
    if created:
        with database.unit() as unit:
            details = {"golden_set": str(golden_set_id), "subjects": len(scores)}
            audit.note(unit.session, project_id, actor, "send predictions", "model_version", model.row.id, details)
            unit.commit()
    return Taken(created, len(scores), 0)


def _looked_at(database: Database, model: _Model, golden_set_id: uuid.UUID) -> str | None:
    """The hash of the predictions that are on record."""
    with database.read() as session:
        evidence = evidence_store.evidence_of(session, model.row.id, golden_set_id)
        return sha256_of(session, evidence.predictions_blob_id) if evidence else None


def _model(session: Session, project_id: uuid.UUID, model_id: uuid.UUID) -> _Model:
    row = session.scalars(
        select(ModelVersion).where(ModelVersion.project_id == project_id, ModelVersion.id == model_id)
    ).one_or_none()
    if row is None:
        raise NotFound("no-such-model", f"there is no model version {model_id}", "list them with GET /v1/models")
    heads = {head.name: head for head in ontology_of(session, row.ontology_id).heads if head.name in row.heads}
    return _Model(row, get_line(session, row.line_id), artifact_of(session, row.id).format, heads)


def _by_stream(frames: Sequence[FramePrediction]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for frame in frames:
        found.setdefault(frame.stream, []).append(frame.pts)
    return found


def _checked(
    model: _Model, clip: Clip, streams: Mapping[str, Stream], frames: Sequence[FramePrediction]
) -> dict[uuid.UUID, FrameScore]:
    """The scores by subject, in one order whatever they were sent in."""
    found: dict[uuid.UUID, FrameScore] = {}
    for frame in sorted(frames, key=lambda frame: (frame.stream, frame.pts)):
        where = f"frame {frame.pts} of stream {frame.stream!r}"
        stream = streams.get(frame.stream)
        if stream is None or stream.kind != "camera":
            cameras = sorted(name for name, known in streams.items() if known.kind == "camera")
            raise Invalid("invalid-prediction", f"{where}: the clip has the cameras {', '.join(cameras)}", HINT)
        if frame.pts not in stream.pts:
            raise Invalid(
                "invalid-prediction",
                f"{where}: the stream has no frame at this PTS",
                "use the PTS that GET /v1/clips/{id} lists; they are in units of the stream's time base",
            )
        subject = frame_id(clip.id, frame.stream, frame.pts)
        if subject in found:
            raise Invalid("invalid-prediction", f"{where} is there twice", HINT)
        _check(where, model, frame.score)
        _check_embedding(where, model, frame.score.embedding)
        found[subject] = frame.score
    return found


def _check(where: str, model: _Model, score: FrameScore) -> None:
    if strange := sorted(set(score.answers) - set(model.heads)):
        raise Invalid("invalid-prediction", f"{where}: version {model.row.number} has no head {strange[0]!r}", HINT)
    if missing := sorted(set(model.heads) - set(score.answers)):
        raise Invalid(
            "invalid-prediction",
            f"{where} has no answer of the head {missing[0]!r}",
            "send one of every head that the version has; an empty answer is one too",
        )
    for name, answer in score.answers.items():
        try:
            check_prediction(model.heads[name], answer)
            if answer.array is not None:
                check_array(model.heads[name], answer.value["size"], answer.array)
        except AnswerError as error:
            raise Invalid("invalid-prediction", f"{where}: {error}", HINT) from error
        doubt = score.uncertainty[name]
        if not math.isfinite(doubt) or doubt < 0:
            raise Invalid("invalid-prediction", f"{where}: head {name!r} has an uncertainty of {doubt}", HINT)


def _check_embedding(where: str, model: _Model, embedding: Sequence[float]) -> None:
    if not embedding:
        if model.format == ModelFormat.PREDICTIONS:
            raise Invalid(
                "invalid-prediction",
                f"{where} has no embedding, and version {model.row.number} can't be asked for it",
                f"send {DIMENSIONS} numbers of unit length: subjects are spread by them",
            )
        return
    length = float(np.linalg.norm(np.asarray(embedding, dtype=np.float64)))
    if len(embedding) != DIMENSIONS or not math.isfinite(length) or abs(length - 1) > 1e-3:
        raise Invalid(
            "invalid-prediction",
            f"{where}: the embedding has {len(embedding)} numbers and the length {length:.4g}",
            f"send {DIMENSIONS} numbers, divided by their length",
        )


def _predictions(model: _Model, scores: Mapping[str, FrameScore]) -> list[Prediction]:
    return [
        Prediction(subject, head, score.answers[head], score.uncertainty[head])
        for subject, score in scores.items()
        for head in sorted(model.heads)
    ]


def _own_space(session: Session, model: ModelVersion) -> uuid.UUID:
    """The embedding space of this model version, made where there is none. It becomes its line's if it is crowned
    first."""
    session.execute(
        insert(EmbeddingSpace)
        .values(id=new_id(), project_id=model.project_id, model_version_id=model.id)
        .on_conflict_do_nothing(index_elements=["model_version_id"])
    )
    return session.scalars(select(EmbeddingSpace.id).where(EmbeddingSpace.model_version_id == model.id)).one()


def _embed_too(unit: UnitOfWork, model: _Model, clip: Clip) -> None:
    """Where the line's space is another model's, its trunk has to look at these frames too: a worker does."""
    line = get_line(unit.session, model.line.id)
    space = unit.session.get(EmbeddingSpace, line.embedding_space_id) if line.embedding_space_id else None
    if space is None or (space.model_version_id == model.row.id and model.format == ModelFormat.PREDICTIONS):
        return
    ledger.enqueue(
        unit,
        kind="score",
        project_id=clip.project_id,
        subject_id=clip.id,
        dedupe_key=f"embed:{clip.id}:{model.row.id}",
        payload={"model_version_id": str(model.row.id), "line_id": str(line.id)},
    )


def _replayed(
    session: Session,
    model: _Model,
    clip: Clip,
    sha256: str,
    vectors: Mapping[uuid.UUID, Sequence[float]],
    subjects: int,
) -> Taken:
    """What was recorded before, if it is the same. Raises Conflict."""
    scoring = session.scalars(
        select(Scoring).where(Scoring.clip_id == clip.id, Scoring.model_version_id == model.row.id)
    ).one()
    kept = session.execute(
        select(Embedding.subject_id, Embedding.vector)
        .join(EmbeddingSpace, EmbeddingSpace.id == Embedding.space_id)
        .where(EmbeddingSpace.model_version_id == model.row.id, Embedding.subject_id.in_(vectors))
    )
    found = {subject: np.asarray(vector, dtype=np.float64) for subject, vector in kept}
    moved = [
        subject
        for subject, vector in vectors.items()
        if subject not in found or np.abs(found[subject] - np.asarray(vector, dtype=np.float64)).max() > 1e-5
    ]
    if sha256_of(session, scoring.predictions_blob_id) != sha256 or moved:
        raise Conflict(
            "predictions-differ",
            f"version {model.row.number} said something else of clip {clip.id} before",
            "a version's answers can't change: register the changed model as a version of its own",
        )
    return Taken(False, subjects, len(vectors), scoring.id)
