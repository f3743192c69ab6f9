"""Rows about tasks in the label tool: intents and open ones, the queue items behind them, and the tool's projects."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, exists, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.store.tables.labels import Annotation, Campaign, LabelTask, QueueItem, ToolProject
from engine.store.tables.metadata import new_id
from engine.store.tables.recordings import Clip, Drive, Frame, Stream

LIVE = ("intended", "open")


@dataclass(frozen=True)
class TaskFrame:
    """The frame that a task is about, and where it comes from."""

    frame: Frame
    stream: str
    clip: Clip
    drive: str


def annotated() -> ColumnElement[bool]:
    """Whether somebody's annotation of the task stands."""
    return exists().where(Annotation.task_id == LabelTask.id, Annotation.deleted_at.is_(None))


def tool_project(session: Session, ontology_id: uuid.UUID, lock: bool = False) -> ToolProject | None:
    """The label tool's project for the ontology; `lock` holds the row until the transaction ends."""
    query = select(ToolProject).where(ToolProject.ontology_id == ontology_id)
    return session.execute(query.with_for_update() if lock else query).scalar_one_or_none()


def remember_tool_project(session: Session, project_id: uuid.UUID, ontology_id: uuid.UUID, number: int) -> None:
    """Note the tool's project. Another one than before has none of our tasks, so all are due again."""
    session.execute(
        insert(ToolProject)
        .values(id=new_id(), project_id=project_id, ontology_id=ontology_id, tool_project=number)
        .on_conflict_do_nothing(index_elements=["project_id", "ontology_id"])
    )
    row = tool_project(session, ontology_id, lock=True)
    if row is not None and row.tool_project != number:
        row.tool_project, row.collected_until = number, None
        session.execute(
            update(LabelTask)
            .where(LabelTask.ontology_id == ontology_id, LabelTask.state == "open")
            .values(state="intended", tool_task=None, tool_project=None)
        )
        session.execute(
            update(LabelTask)
            .where(LabelTask.ontology_id == ontology_id, LabelTask.state == "cancelled")
            .values(tool_task=None)
        )


def waiting_for_people(session: Session, ontology_id: uuid.UUID) -> int:
    """How many live tasks nobody has annotated: what the window holds."""
    query = select(func.count()).where(LabelTask.ontology_id == ontology_id, LabelTask.state.in_(LIVE), ~annotated())
    return session.execute(query).scalar_one()


def next_items(session: Session, ontology_id: uuid.UUID, limit: int) -> Sequence[tuple[QueueItem, Campaign]]:
    """The first queued items in the queue's order with their campaigns, locked; one in other hands is passed over."""
    query = (
        select(QueueItem, Campaign)
        .join(Campaign, Campaign.id == QueueItem.campaign_id)
        .where(QueueItem.ontology_id == ontology_id, QueueItem.state == "queued")
        .order_by(QueueItem.priority.desc(), QueueItem.id)
        .limit(limit)
        .with_for_update(of=QueueItem, skip_locked=True)
    )
    return [(item, campaign) for item, campaign in session.execute(query)]


def has_queued(session: Session, ontology_id: uuid.UUID) -> bool:
    query = select(exists().where(QueueItem.ontology_id == ontology_id, QueueItem.state == "queued"))
    return bool(session.execute(query).scalar_one())


def live_task(session: Session, subject_id: uuid.UUID, ontology_id: uuid.UUID) -> LabelTask | None:
    """The subject's live task of the lowest slot, locked."""
    return session.execute(
        select(LabelTask)
        .where(LabelTask.subject_id == subject_id, LabelTask.ontology_id == ontology_id, LabelTask.state.in_(LIVE))
        .order_by(LabelTask.slot)
        .limit(1)
        .with_for_update()
    ).scalar_one_or_none()


def is_annotated(session: Session, task_id: uuid.UUID) -> bool:
    query = select(exists().where(Annotation.task_id == task_id, Annotation.deleted_at.is_(None)))
    return bool(session.execute(query).scalar_one())


def is_answered(session: Session, item: QueueItem) -> bool:
    """Whether somebody has answered a task of the item: the one that it hangs on, or a further one made since."""
    answered = exists().where(
        LabelTask.subject_id == item.subject_id,
        LabelTask.ontology_id == item.ontology_id,
        or_(LabelTask.id == item.task_id, LabelTask.created_at > item.created_at),
        annotated(),
    )
    return bool(session.execute(select(answered)).scalar_one())


def add(session: Session, **columns: Any) -> LabelTask:
    """A new intent: its id is the key that its task in the label tool will carry."""
    task = LabelTask(id=new_id(), state="intended", **columns)
    session.add(task)
    session.flush()
    return task


def intended(session: Session, ontology_id: uuid.UUID) -> Sequence[LabelTask]:
    """All intents, oldest first."""
    return session.scalars(
        select(LabelTask)
        .where(LabelTask.ontology_id == ontology_id, LabelTask.state == "intended")
        .order_by(LabelTask.id)
    ).all()


def of_subject(session: Session, subject_id: uuid.UUID, ontology_id: uuid.UUID) -> Sequence[LabelTask]:
    """Every task that the subject has had, oldest first, locked."""
    return session.scalars(
        select(LabelTask)
        .where(LabelTask.subject_id == subject_id, LabelTask.ontology_id == ontology_id)
        .order_by(LabelTask.id)
        .with_for_update()
    ).all()


def items_of_subject(
    session: Session, subject_id: uuid.UUID, ontology_id: uuid.UUID
) -> Sequence[tuple[QueueItem, Campaign]]:
    """The items that are not dropped, with their campaigns, locked."""
    rows = session.execute(
        select(QueueItem, Campaign)
        .join(Campaign, Campaign.id == QueueItem.campaign_id)
        .where(QueueItem.subject_id == subject_id, QueueItem.ontology_id == ontology_id, QueueItem.state != "dropped")
        .order_by(QueueItem.id)
        .with_for_update(of=QueueItem)
    )
    return [(item, campaign) for item, campaign in rows]


def to_reconcile(session: Session, ontology_id: uuid.UUID, recent_s: float, limit: int) -> Sequence[LabelTask]:
    """The live tasks, and the lately made ones whatever became of them: a timed-out call for these may land yet."""
    recent = LabelTask.created_at > func.clock_timestamp() - func.make_interval(0, 0, 0, 0, 0, 0, recent_s)
    return session.scalars(
        select(LabelTask)
        .where(LabelTask.ontology_id == ontology_id, or_(LabelTask.state.in_(LIVE), recent))
        .order_by(LabelTask.state.in_(LIVE).desc(), LabelTask.id.desc())
        .limit(limit)
    ).all()


def cancel_unwanted(session: Session, ontology_id: uuid.UUID) -> int:
    """Cancel the live tasks that no open item wants and nobody has annotated; returns how many."""
    wanted = exists().where(
        QueueItem.subject_id == LabelTask.subject_id,
        QueueItem.ontology_id == LabelTask.ontology_id,
        QueueItem.state == "open",
    )
    cancelled = session.execute(
        update(LabelTask)
        .where(LabelTask.ontology_id == ontology_id, LabelTask.state.in_(LIVE), ~wanted, ~annotated())
        .values(state="cancelled", done_at=func.clock_timestamp())
        .returning(LabelTask.id)
    )
    return len(cancelled.all())


def to_delete(session: Session, ontology_id: uuid.UUID) -> dict[uuid.UUID, int]:
    """Cancelled tasks that the label tool still has: its ids by ours."""
    rows = session.execute(
        select(LabelTask.id, LabelTask.tool_task).where(
            LabelTask.ontology_id == ontology_id,
            LabelTask.state == "cancelled",
            LabelTask.tool_task.is_not(None),
            ~annotated(),
        )
    )
    return {task_id: number for task_id, number in rows if number is not None}


def forget_tool_tasks(session: Session, task_ids: Collection[uuid.UUID]) -> None:
    """Note that the label tool no longer has these cancelled tasks."""
    session.execute(
        update(LabelTask).where(LabelTask.id.in_(task_ids), LabelTask.state == "cancelled").values(tool_task=None)
    )


def opened(session: Session, task_id: uuid.UUID, number: int, tool_task: int) -> None:
    """Note that the label tool has the task of an intent. One cancelled meanwhile stays so, and can be deleted."""
    session.execute(
        update(LabelTask)
        .where(LabelTask.id == task_id, LabelTask.state.in_(("intended", "cancelled")))
        .values(
            tool_project=number,
            tool_task=tool_task,
            state=text("CASE WHEN label_tasks.state = 'intended' THEN 'open' ELSE label_tasks.state END"),
            opened_at=func.clock_timestamp(),
        )
    )


def give_up(session: Session, task: LabelTask, reason: str) -> None:
    """Cancel an intent whose task can't be made, and drop the items that want it, with the reason."""
    session.execute(
        update(LabelTask)
        .where(LabelTask.id == task.id, LabelTask.state == "intended")
        .values(state="cancelled", done_at=func.clock_timestamp())
    )
    items = session.scalars(
        select(QueueItem).where(
            QueueItem.subject_id == task.subject_id,
            QueueItem.ontology_id == task.ontology_id,
            QueueItem.state == "open",
        )
    )
    for item in items:
        move(session, item, "dropped", dropped=reason)


def move(session: Session, item: QueueItem, state: str, task_id: uuid.UUID | None = None, **reason: Any) -> None:
    """Put an item into a state; `reason` adds to what is shown of it, and None takes a word back."""
    item.state = state
    item.task_id = task_id if task_id is not None else item.task_id
    item.reason = {name: value for name, value in {**item.reason, **reason}.items() if value is not None}
    item.updated_at = session.execute(select(func.clock_timestamp())).scalar_one()


def frames_of(session: Session, tasks: Sequence[LabelTask]) -> dict[uuid.UUID, TaskFrame]:
    """By task: its frame. A task about something else than a frame, or about an erased one, is left out."""
    rows = session.execute(
        select(LabelTask.id, Frame, Stream.name, Clip, Drive.external_id)
        .join(Frame, Frame.id == LabelTask.subject_id)
        .join(Stream, Stream.id == Frame.stream_id)
        .join(Clip, Clip.id == Frame.clip_id)
        .join(Drive, Drive.id == Clip.drive_id)
        .where(LabelTask.id.in_([task.id for task in tasks]), Clip.state != "erased")
    )
    return {task_id: TaskFrame(frame, stream, clip, drive) for task_id, frame, stream, clip, drive in rows}


def reasons_of(session: Session, tasks: Sequence[LabelTask]) -> dict[uuid.UUID, list[tuple[str, str, dict[str, Any]]]]:
    """By subject: campaign, arm and reason of each open item."""
    rows = session.execute(
        select(QueueItem.subject_id, Campaign.name, QueueItem.arm, QueueItem.reason)
        .join(Campaign, Campaign.id == QueueItem.campaign_id)
        .where(
            QueueItem.subject_id.in_([task.subject_id for task in tasks]),
            QueueItem.ontology_id.in_({task.ontology_id for task in tasks}),
            QueueItem.state == "open",
        )
        .order_by(QueueItem.id)
    )
    found: dict[uuid.UUID, list[tuple[str, str, dict[str, Any]]]] = {}
    for subject_id, campaign, arm, reason in rows:
        found.setdefault(subject_id, []).append((campaign, arm, reason))
    return found
