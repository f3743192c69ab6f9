"""Reconcile: what the label tool has is brought in line with the tasks that there should be, whatever landed late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import update

from engine.jobs import ledger
from engine.jobs.perform import WorkPostponed
from engine.ports import LabelBridge, LabelToolUnavailable, ToolTask
from engine.store import advisory_lock, annotation_revisions, label_tasks, tombstones
from engine.store.tables.labels import LabelTask
from engine.store.unit_of_work import Database

RECENT_S = 900.0
"""A call that timed out is not taken to land later than this."""
MOST_KEYS = 600
AWAY_S = 2.0


@dataclass(frozen=True)
class Reconciled:
    """In tasks: doubles and unwanted ones that were deleted, vanished ones that will be made again."""

    deleted: int = 0
    vanished: int = 0


def surplus(
    bridge: LabelBridge, number: int, found: Mapping[str, Sequence[ToolTask]]
) -> tuple[dict[str, ToolTask], list[int]]:
    """Of the tool's tasks by key: the one that stays, and the ids of those to delete.

    The lowest id stays, or the lowest that somebody has annotated: such a one is never deleted.
    """
    kept = {key: tools[0] for key, tools in found.items() if tools}
    doubled = {key: tools for key, tools in found.items() if len(tools) > 1}
    if not doubled:
        return kept, []
    touched = {tool.id for tool, ids in bridge.annotation_ids(number) if ids}
    gone = []
    for key, tools in doubled.items():
        kept[key] = next((tool for tool in tools if tool.id in touched), tools[0])
        gone += [tool.id for tool in tools if tool.id not in touched and tool.id != kept[key].id]
    return kept, gone


def reconcile(database: Database, bridge: LabelBridge, lease: ledger.Lease, name: str) -> Reconciled:
    """Work a reconciliation of an ontology; `name` is the lock that whoever makes its tasks holds.

    Raises WorkPostponed while the label tool is away or a push is under way.
    """
    with advisory_lock.held(database.engine, name) as ours:
        if not ours:
            raise WorkPostponed("another worker is at this ontology's tasks", 1.0)
        try:
            return _reconcile(database, bridge, lease)
        except LabelToolUnavailable as away:
            raise WorkPostponed(str(away), AWAY_S) from away


def _reconcile(database: Database, bridge: LabelBridge, lease: ledger.Lease) -> Reconciled:
    ontology_id = lease.subject_id
    with database.read() as session:
        project = label_tasks.tool_project(session, ontology_id)
        tasks = label_tasks.to_reconcile(session, ontology_id, RECENT_S, MOST_KEYS)
        lately = tombstones.erased_since(session, lease.project_id, "label_task", RECENT_S)
    if project is None:
        return Reconciled()
    number = project.tool_project
    late = _landed_late(database, bridge, lease, number) if lately else []
    bridge.delete_tasks(late)
    if not tasks:
        return Reconciled(len(late))
    found = bridge.tasks_by_key(number, [str(task.id) for task in tasks])
    kept, gone = surplus(bridge, number, found)
    unwanted = [kept[str(t.id)].id for t in tasks if t.state == "cancelled" and str(t.id) in kept]
    if unwanted:
        touched = {tool.id for tool, ids in bridge.annotation_ids(number) if ids}
        gone += [tool_id for tool_id in unwanted if tool_id not in touched]
    bridge.delete_tasks(gone)
    vanished = [task for task in tasks if task.state == "open" and str(task.id) not in kept]
    moved = {
        task.id: kept[str(task.id)].id
        for task in tasks
        if task.state in ("open", "done") and str(task.id) in kept and kept[str(task.id)].id != task.tool_task
    }
    with database.unit() as unit:
        ledger.complete(unit, lease)
        session = unit.session
        for task_id, tool_task in moved.items():
            session.execute(
                update(LabelTask)
                .where(LabelTask.id == task_id, LabelTask.state.in_(("open", "done")))
                .values(tool_task=tool_task)
            )
        for task in vanished:
            # Somebody deleted it in the tool, and with it what had been said there.
            again = (
                update(LabelTask)
                .where(LabelTask.id == task.id, LabelTask.state == "open")
                .values(state="intended", tool_task=None)
                .returning(LabelTask.id)
            )
            if session.execute(again).one_or_none() is not None:
                annotation_revisions.delete(session, annotation_revisions.standing(session, [task.id]))
        if vanished:
            ledger.enqueue(
                unit,
                kind="push",
                project_id=lease.project_id,
                subject_id=ontology_id,
                dedupe_key=f"push:{ontology_id}:{lease.job_id}",
            )
        unit.commit()
    return Reconciled(len(gone) + len(late), len(vanished))


def _landed_late(database: Database, bridge: LabelBridge, lease: ledger.Lease, number: int) -> list[int]:
    """Tasks of something erased, in the tool although they were deleted there: made by a call that timed out."""
    since = (datetime.now(UTC) - timedelta(seconds=2 * RECENT_S)).isoformat()
    there: dict[str, list[int]] = {}
    for tool, _ in bridge.annotation_ids(number, since):
        there.setdefault(tool.key, []).append(tool.id)
    with database.read() as session:
        erased = tombstones.known(session, lease.project_id, "label_task", there)
    return [task_id for key in erased for task_id in there[key]]
