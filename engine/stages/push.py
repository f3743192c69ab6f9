"""Push: keeps a window of open tasks in the label tool, topped up in the queue's order, one live task a subject.

A lease can't guard a POST to another system. So an intent is committed first and its id goes into the task's data;
tasks are recovered by that id, and of doubles one stays. One push or reconciliation an ontology at a time, by an
advisory lock that ends with its holder, so that two workers don't both make what an intent asks for.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from engine.domain.ontology import Ontology
from engine.jobs import failpoints, ledger
from engine.jobs.perform import WorkPostponed
from engine.ports import (
    BlobStore,
    FrameReader,
    LabelBridge,
    LabelToolRefused,
    LabelToolUnavailable,
    Redactor,
    TaskDraft,
    ToolTask,
)
from engine.stages.drafts import Sign, draft_tasks
from engine.stages.label_schedules import ensure_label_schedules
from engine.stages.reconcile import surplus
from engine.store import advisory_lock, label_tasks
from engine.store.lines import ontology_of
from engine.store.tables.labels import Campaign, LabelTask, QueueItem
from engine.store.unit_of_work import Database, UnitOfWork

WINDOW = 50
"""Open tasks that nobody has annotated yet, at most."""

AWAY_S = 2.0
"""Pause before the label tool is tried again while it is away."""
BUSY_S = 1.0


@dataclass(frozen=True)
class Pushed:
    """What a push did, in tasks: opened in the label tool, deleted from it, given up."""

    opened: int = 0
    deleted: int = 0
    given_up: int = 0


def lock_name(ontology_id: uuid.UUID) -> str:
    """The lock of whoever makes or deletes the ontology's tasks in the label tool."""
    return f"label tasks of {ontology_id}"


def push(
    database: Database,
    blobs: BlobStore,
    reader: FrameReader,
    redactor: Redactor,
    bridge: LabelBridge,
    sign: Sign,
    lease: ledger.Lease,
    window: int = WINDOW,
) -> Pushed:
    """Work a push job of an ontology. Raises WorkPostponed while the label tool is away or another one is at it."""
    ontology_id = lease.subject_id
    with advisory_lock.held(database.engine, lock_name(ontology_id)) as ours:
        if not ours:
            raise WorkPostponed("another worker is at this ontology's tasks", BUSY_S)
        with database.read() as session:
            ontology = ontology_of(session, ontology_id)
        try:
            return _push(database, blobs, reader, redactor, bridge, sign, lease, ontology, window)
        except LabelToolUnavailable as away:
            raise WorkPostponed(str(away), AWAY_S) from away


def _push(
    database: Database,
    blobs: BlobStore,
    reader: FrameReader,
    redactor: Redactor,
    bridge: LabelBridge,
    sign: Sign,
    lease: ledger.Lease,
    ontology: Ontology,
    window: int,
) -> Pushed:
    ontology_id = lease.subject_id
    with database.unit() as unit:
        ledger.guard(unit, lease)
        label_tasks.cancel_unwanted(unit.session, ontology_id)
        gone = label_tasks.to_delete(unit.session, ontology_id)
        leftovers = bool(label_tasks.intended(unit.session, ontology_id))
        room = window - label_tasks.waiting_for_people(unit.session, ontology_id)
        wanted = room > 0 and label_tasks.has_queued(unit.session, ontology_id)
        unit.commit()
    if not (gone or leftovers or wanted):
        return Pushed()
    number = bridge.ensure_project(ontology)
    with database.unit() as unit:
        ledger.guard(unit, lease)
        if label_tasks.tool_project(unit.session, ontology_id) is None:
            ensure_label_schedules(unit.session, lease.project_id, ontology_id)  # the first push of a new line
        label_tasks.remember_tool_project(unit.session, lease.project_id, ontology_id, number)
        _intend(unit, ontology_id, room)
        intents = label_tasks.intended(unit.session, ontology_id)
        unit.commit()
    failpoints.hit("push.after_intent")
    bridge.delete_tasks(sorted(gone.values()))
    # Only these can be in the tool already: what a dead worker made or began to, and what is to be made again.
    look = leftovers or any(task.tool_task is not None for task in intents)
    found = bridge.tasks_by_key(number, [str(task.id) for task in intents]) if look else {}
    found = _without_outdated(bridge, intents, found)
    drafted = draft_tasks(
        database, blobs, reader, redactor, sign, ontology, [task for task in intents if str(task.id) not in found]
    )
    broken = drafted.broken
    broken.update(_create(bridge, number, ontology, drafted.drafts))
    failpoints.hit("push.after_post")
    found = bridge.tasks_by_key(number, [str(task.id) for task in intents])
    kept, doubles = surplus(bridge, number, found)
    bridge.delete_tasks(doubles)
    missing = [task for task in intents if str(task.id) not in kept and task.id not in broken]
    failpoints.hit("push.before_record")
    with database.unit() as unit:
        if missing:
            ledger.guard(unit, lease)
        else:
            ledger.complete(unit, lease)
        label_tasks.forget_tool_tasks(unit.session, gone.keys())
        for task in intents:
            if task.id in broken:
                label_tasks.give_up(unit.session, task, broken[task.id])
            elif str(task.id) in kept:
                label_tasks.opened(unit.session, task.id, number, kept[str(task.id)].id)
        unit.commit()
    if missing:
        raise WorkPostponed(f"{len(missing)} tasks are not to be seen in the label tool yet", AWAY_S)
    return Pushed(len(kept), len(gone) + len(doubles), len(broken))


def _intend(unit: UnitOfWork, ontology_id: uuid.UUID, room: int) -> None:
    """Rows for the tasks to come, for as much of the queue as there is room for."""
    if room <= 0:
        return
    for item, campaign in label_tasks.next_items(unit.session, ontology_id, room):
        if room <= 0:
            return
        room -= _intend_item(unit.session, item, campaign)


def _intend_item(session: Session, item: QueueItem, campaign: Campaign) -> int:
    """Attach the item to its subject's live task, or intend one a person to be asked; returns how many are new."""
    live = label_tasks.live_task(session, item.subject_id, item.ontology_id)
    if live is None:
        people = max(1, int(campaign.settings.get("annotators", 1)))
        tasks = [
            label_tasks.add(
                session,
                project_id=item.project_id,
                subject_id=item.subject_id,
                ontology_id=item.ontology_id,
                slot=slot,
                heads=sorted(item.heads),
                blind=item.arm == "control",
                model_version_id=item.model_version_id,
            )
            for slot in range(people)
        ]
        label_tasks.move(session, item, "open", tasks[0].id)
        return people
    heads, blind = sorted({*live.heads, *item.heads}), live.blind or item.arm == "control"
    if heads != sorted(live.heads) or blind != live.blind:
        if label_tasks.is_annotated(session, live.id):
            return 0  # somebody answered for less than is wanted now: it waits for a task of its own
        # The tool's task says otherwise, so it is made again under the same key; `tool_task` tells which is outdated.
        live.heads, live.blind, live.state = heads, blind, "intended"
    label_tasks.move(session, item, "open", live.id)
    return 0


def _without_outdated(
    bridge: LabelBridge, intents: Sequence[LabelTask], found: dict[str, list[ToolTask]]
) -> dict[str, list[ToolTask]]:
    """What of `found` still says what is intended; the rest is deleted, to be made again."""
    outdated = {str(task.id) for task in intents if task.tool_task is not None}
    bridge.delete_tasks([tool.id for key in outdated for tool in found.get(key, ())])
    return {key: tools for key, tools in found.items() if key not in outdated}


def _create(bridge: LabelBridge, number: int, ontology: Ontology, drafts: Sequence[TaskDraft]) -> dict[uuid.UUID, str]:
    """Make the tasks in one call; one by one where the tool refuses them together. Returns why some can't be made."""
    if not drafts:
        return {}
    try:
        bridge.create_tasks(number, ontology, drafts)
        return {}
    except LabelToolRefused as refused:
        if len(drafts) == 1:
            return {uuid.UUID(drafts[0].key): str(refused)}
    broken: dict[uuid.UUID, str] = {}
    for draft in drafts:
        broken.update(_create(bridge, number, ontology, [draft]))
    if len(broken) == len(drafts):
        # All of them: it is not the tasks that are wrong, and nobody should lose a queue to a bad configuration.
        raise LabelToolRefused(next(iter(broken.values())))
    return broken
