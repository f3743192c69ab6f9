"""The label queue in its own order: what is labelled next, and why it was chosen."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import Select, and_, or_, select
from sqlalchemy.orm import Session

from engine.queries.records import one, record
from engine.store.tables.labels import Campaign, LabelTask, QueueItem
from engine.store.tables.recordings import Blob, Frame, Stream


def _items(project_id: uuid.UUID) -> Select[*tuple[Any, ...]]:
    return (
        select(QueueItem, Campaign.name, Frame, Stream.name, Blob.sha256, LabelTask.tool_project, LabelTask.tool_task)
        .join(Campaign, Campaign.id == QueueItem.campaign_id)
        .outerjoin(Frame, Frame.id == QueueItem.subject_id)
        .outerjoin(Stream, Stream.id == Frame.stream_id)
        .outerjoin(Blob, Blob.id == Frame.picture_blob_id)
        .outerjoin(LabelTask, LabelTask.id == QueueItem.task_id)
        .where(QueueItem.project_id == project_id)
    )


def listing(
    session: Session,
    project_id: uuid.UUID,
    *,
    limit: int,
    after: uuid.UUID | None = None,
    state: str | None = None,
    campaign: str | None = None,
    arm: str | None = None,
    head: str | None = None,
) -> list[dict[str, Any]]:
    """Items in the order in which they are labelled: by priority, then by age; those after the item `after`."""
    query = _items(project_id).order_by(QueueItem.priority.desc(), QueueItem.id).limit(limit)
    if after is not None:
        priority = select(QueueItem.priority).where(QueueItem.id == after).scalar_subquery()
        query = query.where(
            or_(QueueItem.priority < priority, and_(QueueItem.priority == priority, QueueItem.id > after))
        )
    if state is not None:
        query = query.where(QueueItem.state == state)
    if campaign is not None:
        query = query.where(Campaign.name == campaign)
    if arm is not None:
        query = query.where(QueueItem.arm == arm)
    if head is not None:
        query = query.where(QueueItem.heads.contains([head]))
    return [_item(*row) for row in session.execute(query)]


def detail(session: Session, project_id: uuid.UUID, item_id: uuid.UUID) -> dict[str, Any]:
    """One item. Raises NotFound."""
    query = _items(project_id).where(QueueItem.id == item_id)
    return _item(*one(session, query, "queue item", item_id, "queue"))


def _item(
    item: QueueItem,
    campaign: str,
    frame: Frame | None,
    stream: str | None,
    picture_sha256: str | None,
    tool_project: int | None,
    tool_task: int | None,
) -> dict[str, Any]:
    return record(
        item,
        campaign=campaign,
        clip_id=frame.clip_id if frame else None,
        stream=stream,
        pts=frame.pts if frame else None,
        capture_ns=frame.capture_ns if frame else None,
        picture_sha256=picture_sha256,
        tool_project=tool_project,
        tool_task=tool_task,
    )
