"""Collect: annotations as received, revisions and deletions kept. A webhook is a hint, the sweep is the truth."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from engine.domain.manifest import digest
from engine.domain.ontology import Ontology
from engine.jobs import ledger
from engine.jobs.perform import WorkPostponed
from engine.ports import LabelBridge, LabelToolUnavailable, ToolAnnotation, ToolTask
from engine.store import advisory_lock, annotation_revisions, label_tasks
from engine.store.lines import ontology_of
from engine.store.living import hold_subjects
from engine.store.tables.labels import Annotation, LabelTask, ToolProject
from engine.store.unit_of_work import Database, UnitOfWork

AWAY_S = 2.0
BUSY_S = 1.0
BATCH = 50
OVERLAP = timedelta(seconds=30)
"""The tool stamps a change before it commits it, so what is newer by this much may still come."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Collected:
    """What a collection found: annotations new or changed and deleted, and annotated tasks that are not ours."""

    changed: int = 0
    deleted: int = 0
    strange: int = 0


def hint(unit: UnitOfWork, project_id: uuid.UUID) -> int:
    """Make a collection due for every ontology of the project, at most one a second each; returns how many are new.

    For the label tool's webhook, which says that something changed but not what.
    """
    second = unit.session.execute(select(func.floor(func.extract("epoch", func.clock_timestamp())))).scalar_one()
    made = 0
    for ontology_id in unit.session.scalars(
        select(ToolProject.ontology_id).where(ToolProject.project_id == project_id)
    ).all():
        job_id = ledger.enqueue(
            unit,
            kind="collect",
            project_id=project_id,
            subject_id=ontology_id,
            dedupe_key=f"collect:{ontology_id}:{int(second)}",
        )
        made += job_id is not None
    return made


def collect(database: Database, bridge: LabelBridge, lease: ledger.Lease) -> Collected:
    """Work a collect job of an ontology: records what changed in the label tool since the last one.

    One at a time: to a collection that read before another one and records after it, what that one found would look
    deleted.
    Raises WorkPostponed while the label tool is away, or another one is at it; what was recorded until then stays.
    """
    with advisory_lock.held(database.engine, f"annotations of {lease.subject_id}") as ours:
        if not ours:
            raise WorkPostponed("another worker is collecting this ontology's annotations", BUSY_S)
        with database.read() as session:
            project = label_tasks.tool_project(session, lease.subject_id)
            ontology = ontology_of(session, lease.subject_id)
        if project is None:
            return Collected()  # nothing was ever pushed
        try:
            return _collect(database, bridge, lease, ontology, project.tool_project, project.collected_until)
        except LabelToolUnavailable as away:
            raise WorkPostponed(str(away), AWAY_S) from away


def _collect(
    database: Database,
    bridge: LabelBridge,
    lease: ledger.Lease,
    ontology: Ontology,
    number: int,
    until: str | None,
) -> Collected:
    since = (datetime.fromisoformat(until) - OVERLAP).isoformat() if until else None
    changed = deleted = strange = 0
    for batch in _batches(bridge.task_annotations(number, ontology, since)):
        with database.unit() as unit:
            ledger.guard(unit, lease)
            new, gone, unknown = _record(unit, lease, ontology, batch)
            unit.commit()
        changed, deleted, strange = changed + new, deleted + gone, strange + unknown
        stamps = [annotation.updated_at for _, there in batch for annotation in there]
        # As instants: the tool writes some with microseconds and some without.
        until = max([*([until] if until else []), *stamps], key=datetime.fromisoformat, default=None)
    if strange:
        log.warning("the label tool's project %d has %d annotated tasks that are not ours", number, strange)
    with database.unit() as unit:
        ledger.complete(unit, lease)
        project = label_tasks.tool_project(unit.session, lease.subject_id, lock=True)
        if project is not None and project.tool_project == number:  # else it is another project by now
            project.collected_until = until
        unit.commit()
    return Collected(changed, deleted, strange)


Found = tuple[ToolTask, list[ToolAnnotation]]


def _batches(found: Iterator[Found]) -> Iterator[list[Found]]:
    while batch := list(islice(found, BATCH)):
        yield batch


def _uuid(key: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(key)
    except ValueError:
        return None


def _record(unit: UnitOfWork, lease: ledger.Lease, ontology: Ontology, batch: Sequence[Found]) -> tuple[int, int, int]:
    """Record what a batch of tasks has and no longer has, and make its acceptance due.

    Returns how many annotations are new, how many are gone, and how many annotated tasks are not ours.
    """
    session = unit.session
    keys = {tool.id: _uuid(tool.key) for tool, _ in batch}
    tasks = _tasks(session, lease, {key for key in keys.values() if key is not None})
    known = annotation_revisions.latest(session, lease.project_id, [a.id for _, there in batch for a in there])
    standing = annotation_revisions.standing(session, list(tasks))
    new = gone = strange = 0
    for tool, there in batch:
        key = keys[tool.id]
        task = tasks.get(key) if key is not None else None
        if task is None:
            strange += bool(there)
            continue
        changes = [row.id for row in _record_task(session, ontology, task, there, known)]
        new += len(changes)
        ids = {annotation.id for annotation in there}
        missing = [
            row
            for row in standing
            # Doubles share a key, so what the other one has is not missing here.
            if row.task_id == task.id and row.payload.get("task") == tool.id and row.tool_annotation not in ids
        ]
        annotation_revisions.delete(session, missing)
        gone += len(missing)
        changes += [row.id for row in missing]
        if changes:
            ledger.enqueue(
                unit,
                kind="accept",
                project_id=lease.project_id,
                subject_id=task.id,
                # A deletion has no row of its own, and can be taken back: so a change goes by who saw it, too.
                dedupe_key=f"accept:{task.id}:{changes[-1]}:{lease.job_id}",
            )
    return new, gone, strange


def _record_task(
    session: Session,
    ontology: Ontology,
    task: LabelTask,
    there: Sequence[ToolAnnotation],
    known: Mapping[int, Annotation],
) -> list[Annotation]:
    """The rows of the annotations that are new or changed, those included that were thought deleted."""
    changed = []
    for annotation in there:
        sha256 = digest(dict(annotation.payload))
        earlier = known.get(annotation.id)
        if earlier is None or earlier.payload_sha256 != sha256 or earlier.task_id != task.id:
            changed.append(_add(session, ontology, task, earlier, annotation, sha256))
            if annotation.problem:
                log.warning("annotation %d of task %s can't be used: %s", annotation.id, task.id, annotation.problem)
        elif earlier.deleted_at is not None:
            annotation_revisions.restore(session, earlier)
            changed.append(earlier)
    return changed


def _tasks(session: Session, lease: ledger.Lease, keys: set[uuid.UUID]) -> Mapping[uuid.UUID, LabelTask]:
    """Our tasks of these keys, of subjects that are not erased: these stay until what was said of them is recorded."""
    rows = session.scalars(
        select(LabelTask).where(LabelTask.id.in_(keys), LabelTask.ontology_id == lease.subject_id)
    ).all()
    living = hold_subjects(session, {task.subject_id for task in rows})
    return {task.id: task for task in rows if task.subject_id in living}


def _add(
    session: Session,
    ontology: Ontology,
    task: LabelTask,
    earlier: Annotation | None,
    annotation: ToolAnnotation,
    sha256: str,
) -> Annotation:
    return annotation_revisions.add(
        session,
        earlier,
        project_id=task.project_id,
        task_id=task.id,
        tool_annotation=annotation.id,
        payload_sha256=sha256,
        annotator=annotation.annotator,
        outcome=annotation.outcome,
        lead_time_s=annotation.lead_time_s,
        prediction_shown=annotation.prediction_shown,
        heads_answered=sorted(annotation.answers),
        # The tool shows every class of a head, so who answered it has looked for all of them.
        classes_annotated={head: list(ontology.head(head).classes) for head in sorted(annotation.answers)},
        answers={
            head: {"kind": str(answer.kind), "value": dict(answer.value)} for head, answer in annotation.answers.items()
        },
        payload=dict(annotation.payload),
        problem=annotation.problem,
        tool_updated_at=annotation.updated_at,
    )
