"""Draft: intents as tasks that the label tool takes: redacted picture, signed link, predictions unless blind."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.domain.answers import Answer, AnswerError, check_answer
from engine.domain.ontology import Kind, Ontology
from engine.ports import BlobNotFound, BlobStore, FrameReader, MediaRejected, Redactor, TaskDraft
from engine.stages.discard import discard
from engine.stages.pin import pin
from engine.store import label_tasks
from engine.store.blobs import register
from engine.store.label_tasks import TaskFrame
from engine.store.living import hold_clips
from engine.store.predictions import read
from engine.store.tables.labels import LabelTask
from engine.store.tables.models import ModelVersion, Scoring
from engine.store.tables.recordings import Blob, ShownPicture
from engine.store.unit_of_work import Database

DRAFT_SCORE = 0.3
"""Objects and lines of which the model is less sure than this are not drawn for people: deleting costs them time."""

Sign = Callable[[str], str]
"""The URL under which the label tool's users see the picture with this sha256."""

log = logging.getLogger(__name__)

Predictions = Mapping[uuid.UUID, tuple[str, Mapping[str, Answer]]]


@dataclass(frozen=True)
class Drafted:
    """What can be posted, and by task why the rest never can."""

    drafts: list[TaskDraft]
    broken: dict[uuid.UUID, str]


def draft_tasks(
    database: Database,
    blobs: BlobStore,
    reader: FrameReader,
    redactor: Redactor,
    sign: Sign,
    ontology: Ontology,
    tasks: Sequence[LabelTask],
) -> Drafted:
    """Drafts of these tasks, in their order. No transaction is open while pictures are decoded."""
    with database.read() as session:
        frames = label_tasks.frames_of(session, tasks)
        reasons = label_tasks.reasons_of(session, tasks)
        sources = _sources(session, tasks, frames)
    why = "only a frame that was not erased can be shown in the label tool"
    broken = {task.id: why for task in tasks if task.id not in frames}
    pinned, rejected = _pinned(database, blobs, reader, [frames[task.id] for task in tasks if task.id in frames])
    predictions = _predictions(blobs, ontology, sources)
    drafts = []
    for task in tasks:
        if task.id in broken:
            continue
        seen = frames[task.id]
        if seen.frame.id in rejected:
            broken[task.id] = f"its picture is not to be had: {rejected[seen.frame.id]}"
            continue
        try:
            if seen.frame.id not in pinned:
                raise BlobNotFound("it was erased just now")
            sha256, width, height = _redacted(database, blobs, reader, redactor, seen, pinned[seen.frame.id])
        except (MediaRejected, BlobNotFound) as error:
            broken[task.id] = f"its picture is not to be had: {error}"
            continue
        version, answers = predictions.get(task.id, ("", {}))
        drafts.append(
            TaskDraft(
                key=str(task.id),
                picture_url=sign(sha256),
                width=width,
                height=height,
                heads=task.heads,
                predictions={name: answer for name, answer in answers.items() if name in task.heads},
                model_version=version or None,
                meta=_meta(seen, reasons.get(task.subject_id, []), task.blind),
            )
        )
    return Drafted(drafts, broken)


def _pinned(
    database: Database, blobs: BlobStore, reader: FrameReader, seen: Sequence[TaskFrame]
) -> tuple[dict[uuid.UUID, str], dict[uuid.UUID, str]]:
    """The pictures' hashes by frame, and what is wrong with the frames that have none."""
    frame_ids = list(dict.fromkeys(each.frame.id for each in seen))
    try:
        return pin(database, blobs, reader, frame_ids), {}
    except (MediaRejected, BlobNotFound):
        log.warning("a picture can't be pinned, so they are pinned one by one")
    pinned: dict[uuid.UUID, str] = {}
    rejected: dict[uuid.UUID, str] = {}
    for frame_id in frame_ids:
        try:
            pinned.update(pin(database, blobs, reader, [frame_id]))
        except (MediaRejected, BlobNotFound) as error:
            rejected[frame_id] = str(error)
    return pinned, rejected


def _redacted(
    database: Database, blobs: BlobStore, reader: FrameReader, redactor: Redactor, seen: TaskFrame, sha256: str
) -> tuple[str, int, int]:
    """Hash and size in pixels of what people may see: the pinned picture itself where nothing had to be hidden."""
    picture = replace(reader.decode_image(blobs.read(sha256)), pts=seen.frame.pts)
    shown = redactor.redact(picture)
    if shown.rgb == picture.rgb:
        return sha256, picture.width, picture.height
    stored = blobs.put(reader.encode_png(shown))
    with database.unit() as unit:
        session, project_id = unit.session, seen.clip.project_id
        living = hold_clips(session, [seen.clip.id])
        if living:
            blob = register(session, project_id, stored, "image/png")
            values = {"frame_id": seen.frame.id, "blob_id": blob.id, "project_id": project_id}
            session.execute(insert(ShownPicture).values(values).on_conflict_do_nothing())
            unit.commit()
    if not living:
        discard(database, blobs, [stored.sha256])
        raise BlobNotFound("it was erased just now")
    return stored.sha256, shown.width, shown.height


@dataclass(frozen=True)
class _Source:
    """Where a task's predictions are: the blob, the model version's number, and whose."""

    sha256: str
    number: int
    subject_id: str


def _sources(
    session: Session, tasks: Sequence[LabelTask], frames: Mapping[uuid.UUID, TaskFrame]
) -> dict[uuid.UUID, _Source]:
    """Where the predictions of the tasks that are not blind are to be read."""
    shown = [t for t in tasks if not t.blind and t.model_version_id is not None and t.id in frames]
    rows = session.execute(
        select(Scoring.clip_id, Scoring.model_version_id, Blob.sha256, ModelVersion.number)
        .join(Blob, Blob.id == Scoring.predictions_blob_id)
        .join(ModelVersion, ModelVersion.id == Scoring.model_version_id)
        .where(
            Scoring.clip_id.in_({frames[t.id].clip.id for t in shown}),
            Scoring.model_version_id.in_({t.model_version_id for t in shown}),
        )
    )
    scorings: dict[tuple[uuid.UUID, uuid.UUID | None], tuple[str, int]] = {
        (clip, model): (sha256, number) for clip, model, sha256, number in rows if sha256 is not None
    }
    found = {}
    for task in shown:
        scoring = scorings.get((frames[task.id].clip.id, task.model_version_id))
        if scoring is not None:
            found[task.id] = _Source(*scoring, str(task.subject_id))
    return found


def _predictions(blobs: BlobStore, ontology: Ontology, sources: Mapping[uuid.UUID, _Source]) -> Predictions:
    """By task the model version and its answers for the heads that people label."""
    person = {head.name: head for head in ontology.person_heads}
    found: dict[uuid.UUID, tuple[str, dict[str, Answer]]] = {}
    for sha256 in {source.sha256 for source in sources.values()}:
        by_subject: dict[str, dict[str, Answer]] = {}
        for prediction in read(blobs.read(sha256)):
            head = person.get(prediction.head)
            if head is None:
                continue
            answer = worth_showing(prediction.answer)
            try:
                check_answer(head, answer)
            except AnswerError as error:  # of a model made elsewhere: a person draws it then
                log.warning("prediction of %s for %s is not shown: %s", prediction.head, prediction.subject_id, error)
                continue
            by_subject.setdefault(prediction.subject_id, {})[prediction.head] = answer
        for task_id, source in sources.items():
            if source.sha256 == sha256:
                found[task_id] = (f"v{source.number}", by_subject.get(source.subject_id, {}))
    return found


def worth_showing(answer: Answer) -> Answer:
    """The answer without the objects and lines that the model is unsure of."""
    key = {Kind.BOXES: "objects", Kind.POLYLINES: "lines"}.get(answer.kind)
    if key is None:
        return answer
    sure = [item for item in answer.value.get(key, ()) if item.get("score", 1.0) >= DRAFT_SCORE]
    return Answer(answer.kind, {**answer.value, key: sure}, answer.array)


def _meta(seen: TaskFrame, reasons: Sequence[tuple[str, str, dict[str, Any]]], blind: bool) -> dict[str, str]:
    """What is shown beside the picture: who wants it and why, and which frame it is.

    A blind task doesn't say why: whoever knows that a frame is of the control arm may look at it otherwise.
    """
    why = {} if blind else {"reason": "; ".join(dict.fromkeys(_why(reason) for _, _, reason in reasons)) or "-"}
    return {
        "campaign": ", ".join(dict.fromkeys(campaign for campaign, _, _ in reasons)) or "-",
        **why,
        "drive_external_id": seen.drive,
        "clip_external_id": seen.clip.external_id,
        "stream": seen.stream,
        "pts": str(seen.frame.pts),
    }


def _why(reason: Mapping[str, Any]) -> str:
    if "adjudication" in reason:
        return "annotators disagree"
    if "head" not in reason:
        return "-"
    return f"{reason['head']} uncertain, {100 * float(reason.get('quantile', 0)):.0f}th percentile"
