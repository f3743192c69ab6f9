"""The label queue as cards: each item with its picture's place, its uncertainty by head and what became of it.

Subjects that are frames, that is: moments and spans have no picture of their own yet.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, func, or_, select
from sqlalchemy.orm import Session

from engine.queries.records import one
from engine.store.tables.labels import Campaign, LabelTask, QueueItem
from engine.store.tables.models import ModelVersion, Score, Scoring
from engine.store.tables.recordings import Blob, Clip, Drive, Frame, Stream, Vehicle


@dataclass(frozen=True)
class Uncertainty:
    """How unsure the model was of one head: the raw score, and its quantile on the model's fixed reference."""

    head: str
    raw: float
    quantile: float


@dataclass(frozen=True)
class Card:
    """A queue item and what is shown of it. Sizes are the stream's, in pixels."""

    id: uuid.UUID
    subject_id: uuid.UUID
    state: str
    arm: str
    priority: float
    heads: Sequence[str]
    reason: dict[str, Any]
    inclusion_probability: float | None
    campaign: str
    model_id: uuid.UUID | None
    model_number: int | None
    created_at: datetime
    updated_at: datetime
    clip_id: uuid.UUID
    clip: str
    drive: str
    vehicle: str
    tags: dict[str, Any]
    stream: str
    pts: int
    capture_ns: int
    clock_suspect: bool
    width: int
    height: int
    picture_sha256: str | None
    tool_project: int | None
    tool_task: int | None
    blind: bool | None
    uncertainties: Sequence[Uncertainty]


@dataclass(frozen=True)
class Wanted:
    """What the queue is narrowed to; none is everything."""

    state: str | None = None
    campaign: str | None = None
    arm: str | None = None
    head: str | None = None


@dataclass(frozen=True)
class Place:
    """A place in the queue's order: after the item with this priority and id."""

    priority: float
    id: uuid.UUID


def cards(
    session: Session, project_id: uuid.UUID, wanted: Wanted, limit: int, after: Place | None = None
) -> list[Card]:
    """Items in the order in which they are labelled: by priority, then by age."""
    query = _narrowed(_cards(project_id), wanted).order_by(QueueItem.priority.desc(), QueueItem.id).limit(limit)
    if after is not None:
        query = query.where(
            or_(
                QueueItem.priority < after.priority,
                and_(QueueItem.priority == after.priority, QueueItem.id > after.id),
            )
        )
    return _with_uncertainty(session, session.execute(query).all())


def card(session: Session, project_id: uuid.UUID, item_id: uuid.UUID) -> Card:
    """One item. Raises NotFound."""
    query = _cards(project_id).where(QueueItem.id == item_id)
    return _with_uncertainty(session, [one(session, query, "queue item", item_id, "queue")])[0]


def counts_by_state(session: Session, project_id: uuid.UUID, wanted: Wanted) -> dict[str, int]:
    """How many items are in each state, of those that fit the rest of what is wanted."""
    query = (
        select(QueueItem.state, func.count())
        .join(Campaign, Campaign.id == QueueItem.campaign_id)
        .where(QueueItem.project_id == project_id)
        .group_by(QueueItem.state)
    )
    rest = Wanted(None, wanted.campaign, wanted.arm, wanted.head)
    return {state: number for state, number in session.execute(_narrowed(query, rest))}


def choices(session: Session, project_id: uuid.UUID) -> dict[str, list[str]]:
    """What the queue can be narrowed to: campaigns and heads that there are."""
    rows = session.execute(
        select(Campaign.name, Campaign.heads).where(Campaign.project_id == project_id).order_by(Campaign.name)
    ).all()
    return {"campaigns": [name for name, _ in rows], "heads": sorted({head for _, heads in rows for head in heads})}


def highest_priority(session: Session, project_id: uuid.UUID) -> float:
    """The priority of what is labelled next; 0 where nothing is queued."""
    highest = select(func.max(QueueItem.priority)).where(
        QueueItem.project_id == project_id, QueueItem.state == "queued"
    )
    return session.scalar(highest) or 0.0


def _narrowed(query: Select[*tuple[Any, ...]], wanted: Wanted) -> Select[Any]:
    if wanted.state is not None:
        query = query.where(QueueItem.state == wanted.state)
    if wanted.campaign is not None:
        query = query.where(Campaign.name == wanted.campaign)
    if wanted.arm is not None:
        query = query.where(QueueItem.arm == wanted.arm)
    if wanted.head is not None:
        query = query.where(QueueItem.heads.contains([wanted.head]))
    return query


def _cards(project_id: uuid.UUID) -> Select[*tuple[Any, ...]]:
    return (
        select(
            QueueItem,
            Campaign.name,
            ModelVersion.number,
            Clip,
            Drive.external_id,
            Vehicle.external_id,
            Frame,
            Stream.name,
            Stream.width,
            Stream.height,
            Blob.sha256,
            LabelTask.tool_project,
            LabelTask.tool_task,
            LabelTask.blind,
        )
        .join(Campaign, Campaign.id == QueueItem.campaign_id)
        .outerjoin(ModelVersion, ModelVersion.id == QueueItem.model_version_id)
        .join(Frame, Frame.id == QueueItem.subject_id)
        .join(Stream, Stream.id == Frame.stream_id)
        .join(Clip, Clip.id == Frame.clip_id)
        .join(Drive, Drive.id == Clip.drive_id)
        .join(Vehicle, Vehicle.id == Clip.vehicle_id)
        .outerjoin(Blob, Blob.id == Frame.picture_blob_id)
        .outerjoin(LabelTask, LabelTask.id == QueueItem.task_id)
        .where(QueueItem.project_id == project_id)
    )


def _with_uncertainty(session: Session, rows: Sequence[Any]) -> list[Card]:
    """One query for all scores of a page, each by the model version that the item was chosen by."""
    found: dict[tuple[uuid.UUID, uuid.UUID], list[Uncertainty]] = defaultdict(list)
    scores = session.execute(
        select(Score.subject_id, Scoring.model_version_id, Score.head, Score.raw, Score.quantile)
        .join(Scoring, Scoring.id == Score.scoring_id)
        .where(
            Score.subject_id.in_([row[0].subject_id for row in rows]),
            Scoring.model_version_id.in_({row[0].model_version_id for row in rows}),
        )
        .order_by(Score.head)
    )
    for subject_id, model_id, head, raw, quantile in scores:
        found[subject_id, model_id].append(Uncertainty(head, raw, quantile))
    return [
        Card(
            id=item.id,
            subject_id=item.subject_id,
            state=item.state,
            arm=item.arm,
            priority=item.priority,
            heads=item.heads,
            reason=item.reason,
            inclusion_probability=item.inclusion_probability,
            campaign=campaign,
            model_id=item.model_version_id,
            model_number=number,
            created_at=item.created_at,
            updated_at=item.updated_at,
            clip_id=clip.id,
            clip=clip.external_id,
            drive=drive,
            vehicle=vehicle,
            tags=clip.tags,
            stream=stream,
            pts=frame.pts,
            capture_ns=frame.capture_ns,
            clock_suspect=clip.clock_suspect,
            width=width,
            height=height,
            picture_sha256=picture_sha256,
            tool_project=tool_project,
            tool_task=tool_task,
            blind=blind,
            uncertainties=found[item.subject_id, item.model_version_id],
        )
        for (
            item,
            campaign,
            number,
            clip,
            drive,
            vehicle,
            frame,
            stream,
            width,
            height,
            picture_sha256,
            tool_project,
            tool_task,
            blind,
        ) in rows
    ]
