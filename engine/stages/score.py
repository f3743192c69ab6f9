"""Score: a model's predictions, uncertainties and embeddings for the sampled frames of a clip."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Mapping, Sequence

from sqlalchemy import exists, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.acquisition.quantiles import score_quantile
from engine.domain.formats import ModelFormat
from engine.domain.ids import frame_id
from engine.domain.refusals import Conflict
from engine.domain.sampling import sample
from engine.jobs import ledger
from engine.ports import BlobStore, FrameReader, FrameScore, Scorer, StoredBlob
from engine.stages.discard import discard
from engine.stages.embed import Sampled, embed_scored, embedded_of, pictures_of, record_embeddings, space_of
from engine.store.blobs import register, sha256_of
from engine.store.lines import artifact_of, get_line, get_model, model_files
from engine.store.living import hold_clips
from engine.store.predictions import MEDIA_TYPE, Prediction, write
from engine.store.recordings import ensure_frames
from engine.store.tables.metadata import new_id
from engine.store.tables.models import ModelLine, ModelVersion, Score, Scoring
from engine.store.tables.recordings import Clip, Stream
from engine.store.tables.work import Job
from engine.store.unit_of_work import Database, UnitOfWork

EVERY_S = 0.5  # between sampled frames, where a line's settings say nothing else
MOST_FRAMES = 64  # of a clip and stream


class ScoreBroken(Conflict):
    """The model's answers can't be used; nothing of them is recorded, and asking again won't help."""

    def __init__(self, detail: str, hint: str) -> None:
        super().__init__("score-broken", detail, hint)


def score(database: Database, blobs: BlobStore, reader: FrameReader, scorer: Scorer, lease: ledger.Lease) -> int:
    """Work a score job: returns how many frames were scored; 0 when the clip is gone.

    Of a clip that was scored already, the frames that have no embedding yet get one: returns how many.
    """
    started = time.monotonic()
    with database.read() as session:
        clip = session.get(Clip, lease.subject_id)
        if clip is None:
            return 0  # erased, and its job with it
        model = get_model(session, uuid.UUID(lease.payload["model_version_id"]))
        line = get_line(session, model.line_id)
        done = session.scalar(select(exists().where(Scoring.clip_id == clip.id, Scoring.model_version_id == model.id)))
        # A golden drive is for judging alone: what is scored can be chosen, and what is chosen can be trained on.
        gone = clip.split == "golden" or clip.state not in ("received", "scored")
        # What a model that can't be asked says is sent to us (take_predictions.py), now or later.
        asked = not (gone or done) and artifact_of(session, model.id).format != ModelFormat.PREDICTIONS
        frames = _sample(session, clip, line) if asked else []
    if not gone and not asked:
        return embed_scored(database, blobs, reader, scorer, clip, model, line, lease)
    if not frames:
        with database.unit() as unit:
            ledger.complete(unit, lease)
            unit.commit()
        return 0
    with database.read() as session:
        sources = {f.stream.id: sha256_of(session, f.stream.blob_id) for f in frames}
        files = model_files(session, blobs, model.id)
        space, trunk = space_of(session, blobs, line, model)
        embedded = embedded_of(session, space, frames)
    reference_of(model)  # without one nothing of it could be recorded
    scores: dict[uuid.UUID, FrameScore] = {}
    vectors: dict[uuid.UUID, tuple[float, ...]] = {}
    for batch, pictures in pictures_of(blobs, reader, sources, frames):
        for frame, answer in zip(batch, scorer.score(files, pictures), strict=True):
            _refuse_broken(answer, model)
            scores[frame.id] = answer
            if trunk is None:
                vectors[frame.id] = answer.embedding
        if trunk is not None:
            fresh = [(f, p) for f, p in zip(batch, pictures, strict=True) if f.id not in embedded]
            if fresh:
                found = scorer.embed(trunk, [picture for _, picture in fresh])
                vectors.update({f.id: vector for (f, _), vector in zip(fresh, found, strict=True)})
    stored = blobs.put(
        write(
            Prediction(str(frame.id), head, scores[frame.id].answers[head], scores[frame.id].uncertainty[head])
            for frame in frames
            for head in sorted(model.heads)
        )
    )
    with database.unit() as unit:
        session = unit.session
        living = hold_clips(session, [clip.id])
        if living:
            ledger.complete(unit, lease)
            _record(unit, clip, line, model, stored, time.monotonic() - started, frames, scores, (space, vectors))
            unit.commit()
    if not living:  # erased while it was being scored, and its job with it
        discard(database, blobs, [stored.sha256])
        return 0
    return len(frames)


def _record(
    unit: UnitOfWork,
    clip: Clip,
    line: ModelLine,
    model: ModelVersion,
    stored: StoredBlob,
    seconds: float,
    frames: Sequence[Sampled],
    scores: Mapping[uuid.UUID, FrameScore],
    embedded: tuple[uuid.UUID | None, Mapping[uuid.UUID, tuple[float, ...]]],
) -> None:
    session = unit.session
    scoring = Scoring(
        id=new_id(),
        project_id=clip.project_id,
        clip_id=clip.id,
        model_version_id=model.id,
        predictions_blob_id=register(session, clip.project_id, stored, MEDIA_TYPE).id,
        seconds=seconds,
    )
    session.add(scoring)
    session.flush()
    for stream in {frame.stream.id: frame.stream for frame in frames}.values():
        ensure_frames(session, clip, stream, [frame.pts for frame in frames if frame.stream.id == stream.id])
    record_scores(session, clip, scoring.id, scores, reference_of(model))
    record_embeddings(session, clip, *embedded)
    session.execute(update(Clip).where(Clip.id == clip.id, Clip.state == "received").values(state="scored"))
    move_selection(unit, line.id)


def move_selection(unit: UnitOfWork, line_id: uuid.UUID) -> None:
    """Let selection use the champion's scores once it has scored the whole pool, so that ranks never mix versions.

    A clip that it can't score (its job is dead) is not waited for: one broken file must not stop the loop.
    """
    session = unit.session
    line = get_line(session, line_id)
    if line.champion_id is None or line.selection_model_id == line.champion_id:
        return
    session.flush()
    scored = select(Scoring.clip_id).where(Scoring.model_version_id == line.champion_id)
    given_up = select(Job.subject_id).where(
        Job.kind == "score",
        Job.state == "dead",
        Job.payload["model_version_id"].astext == str(line.champion_id),
    )
    waiting = session.scalar(
        select(
            exists().where(
                Clip.project_id == line.project_id,
                Clip.split == "pool",
                Clip.state.in_(("received", "scored")),
                Clip.id.not_in(scored),
                Clip.id.not_in(given_up),
            )
        )
    )
    if not waiting:
        line.selection_model_id = line.champion_id


def _sample(session: Session, clip: Clip, line: ModelLine) -> list[Sampled]:
    settings = line.settings.get("scoring", {})
    frames = []
    for stream in session.scalars(select(Stream).where(Stream.clip_id == clip.id, Stream.kind == "camera")):
        chosen = sample(
            stream.pts,
            stream.time_base_num,
            stream.time_base_den,
            every_s=settings.get("every_s", EVERY_S),
            most=settings.get("most_frames", MOST_FRAMES),
        )
        frames += [Sampled(frame_id(clip.id, stream.name, pts), stream, pts) for pts in chosen]
    return frames


def reference_of(model: ModelVersion) -> Mapping[str, list[float]]:
    """The model version's fixed reference, which turns its uncertainties into quantiles."""
    reference: Mapping[str, list[float]] = model.score_reference or {}
    missing = sorted(set(model.heads) - set(reference))
    if missing:
        raise ScoreBroken(
            f"model version {model.number} has no fixed reference for {', '.join(missing)}",
            f"have it judged on a golden set first: POST /v1/models/{model.id}:judge",
        )
    return {head: reference[head] for head in model.heads}


def _refuse_broken(answer: FrameScore, model: ModelVersion) -> None:
    missing = sorted(set(model.heads) - (answer.answers.keys() & answer.uncertainty.keys()))
    if missing:
        raise ScoreBroken(
            f"model version {model.number} gave no answer for {', '.join(missing)}", "roll back to a version that does"
        )
    for head in model.heads:
        value = answer.uncertainty[head]
        if not math.isfinite(value):
            raise ScoreBroken(
                f"model version {model.number} gave an uncertainty of {value} for {head}",
                "roll back to another version",
            )


def record_scores(
    session: Session,
    clip: Clip,
    scoring_id: uuid.UUID,
    scores: Mapping[uuid.UUID, FrameScore],
    reference: Mapping[str, list[float]],
) -> None:
    """A row for each subject and head, with the uncertainty's quantile on the model version's reference."""
    rows = []
    for subject, answer in scores.items():
        for head, knots in reference.items():
            raw = answer.uncertainty[head]
            rows.append(
                {
                    "scoring_id": scoring_id,
                    "subject_id": subject,
                    "head": head,
                    "project_id": clip.project_id,
                    "raw": raw,
                    "quantile": score_quantile(raw, knots),
                }
            )
    session.execute(insert(Score), rows)
