"""Accept: what people said on a subject becomes labels, or is asked again.

Labels follow from the annotations that stand, and from nothing else: an edit gives a new revision, a deletion or a
dispute withdraws what was accepted before. Skipped is not empty: it gives no label, and somebody else is asked.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from engine.domain.answers import Answer
from engine.domain.manifest import digest
from engine.domain.ontology import Head, Kind, Ontology
from engine.evidence.agreement.verdict import Outcome, Said, Verdict, Vote, verdict
from engine.jobs import ledger
from engine.store import annotation_revisions, label_tasks
from engine.store.label_revisions import lock_subjects, revise, revisions, withdraw
from engine.store.lines import ontology_of
from engine.store.living import hold_subjects
from engine.store.tables.labels import Annotation, Campaign, Label, LabelTask, QueueItem
from engine.store.unit_of_work import Database

MOST_SKIPS = 2
"""A subject that is skipped more often than this is dropped."""
MOST_ASKED = 5
"""A subject that still isn't settled after this many annotations is dropped."""


class AcceptOvertaken(RuntimeError):
    """Annotations came in while the verdict was being found: find it again."""


@dataclass(frozen=True)
class Accepted:
    """What came of it: the verdict, and how many labels are new or were withdrawn."""

    outcome: str
    labels: int = 0
    withdrawn: int = 0


@dataclass(frozen=True)
class _Said:
    """All that was said on a subject: the newest say of each person, and what could not be understood."""

    votes: list[Vote]
    rows: list[Annotation]  # of each vote
    problems: list[str]
    asked: int  # annotations that stand and can be understood
    answered: frozenset[uuid.UUID]  # the tasks that these are of
    ids: frozenset[uuid.UUID]


def accept(database: Database, lease: ledger.Lease) -> Accepted:
    """Work an accept job of a label task: decides for its whole subject.

    The verdict is found with no transaction open, and recorded under the subject's lock if nothing else was said since.
    Raises AcceptOvertaken when it must be found again.
    """
    with database.read() as session:
        task = session.get(LabelTask, lease.subject_id)
        if task is None:
            return Accepted("erased")  # and its job with it
        ontology = ontology_of(session, task.ontology_id)
        said = _said(session, task)
        heads = _asked(session, task, ontology, said)
        people = _people(session, task)
    found = verdict(heads, said.votes, people)
    with database.unit() as unit:
        session = unit.session
        if not hold_subjects(session, [task.subject_id]):
            ledger.complete(unit, lease)
            unit.commit()
            return Accepted("erased")
        lock_subjects(session, [task.subject_id])
        if _said(session, task).ids != said.ids:
            raise AcceptOvertaken(f"more was said on subject {task.subject_id} while it was being decided")
        items = label_tasks.items_of_subject(session, task.subject_id, task.ontology_id)
        tasks = label_tasks.of_subject(session, task.subject_id, task.ontology_id)
        made, withdrawn = _record_labels(session, task, heads, said, found)
        _settle(session, [item for item, _ in items], tasks, said, found)
        ledger.complete(unit, lease)
        ledger.enqueue(
            unit,
            kind="push",
            project_id=task.project_id,
            subject_id=task.ontology_id,
            dedupe_key=f"push:{task.ontology_id}:{lease.job_id}",
        )
        unit.commit()
    return Accepted(str(found.outcome), made, withdrawn)


def _said(session: Session, task: LabelTask) -> _Said:
    siblings = session.scalars(
        select(LabelTask.id).where(LabelTask.subject_id == task.subject_id, LabelTask.ontology_id == task.ontology_id)
    ).all()
    rows = annotation_revisions.standing(session, siblings)
    newest: dict[str, Annotation] = {}
    for row in sorted(rows, key=lambda row: row.id):
        if row.problem is None and not (row.outcome == Said.SKIPPED and row.annotator in newest):
            newest[row.annotator] = row
    voting = sorted(newest.values(), key=lambda row: row.tool_annotation)
    return _Said(
        votes=[Vote(row.annotator, Said(row.outcome), _answers(row)) for row in voting],
        rows=voting,
        problems=[row.problem for row in rows if row.problem is not None],
        asked=sum(row.problem is None for row in rows),
        answered=frozenset(row.task_id for row in rows if row.problem is None),
        ids=frozenset(row.id for row in rows),
    )


def _answers(row: Annotation) -> dict[str, Answer]:
    return {head: Answer(Kind(said["kind"]), said["value"]) for head, said in row.answers.items()}


def _asked(session: Session, task: LabelTask, ontology: Ontology, said: _Said) -> list[Head]:
    """The heads that people were asked for, by the tasks that they answered."""
    answered = said.answered or {task.id}
    lists = session.scalars(select(LabelTask.heads).where(LabelTask.id.in_(answered))).all()
    wanted = {name for heads in lists for name in heads}
    return [head for head in ontology.person_heads if head.name in wanted]


def _people(session: Session, task: LabelTask) -> int:
    """How many people's say the campaigns want."""
    rows = session.scalars(
        select(Campaign.settings)
        .join(QueueItem, QueueItem.campaign_id == Campaign.id)
        .where(
            QueueItem.subject_id == task.subject_id,
            QueueItem.ontology_id == task.ontology_id,
            QueueItem.state != "dropped",
        )
    ).all()
    return max([1, *(int(settings.get("annotators", 1)) for settings in rows)])


# --- labels ---------------------------------------------------------------------------------------------------------


def _record_labels(
    session: Session, task: LabelTask, heads: Sequence[Head], said: _Said, found: Verdict
) -> tuple[int, int]:
    """Bring the subject's labels in line with the verdict; returns how many are new, and how many were withdrawn."""
    known = revisions(session, task.ontology_id, [task.subject_id])
    made = withdrawn = 0
    for head in heads:
        earlier = known.get((task.subject_id, head.name), [])
        current = next((label for label in earlier if label.superseded_by_id is None), None)
        index = found.chosen.get(head.name)
        if index is None:
            # Of a source that is not people's, it is not ours to take back.
            if current is not None and current.source == "human":
                withdraw(session, current)
                withdrawn += 1
        elif _revise(session, task, head, said, found, index, earlier, current):
            made += 1
    return made, withdrawn


def _revise(
    session: Session,
    task: LabelTask,
    head: Head,
    said: _Said,
    found: Verdict,
    index: int,
    earlier: Sequence[Label],
    current: Label | None,
) -> bool:
    supporters = [said.rows[each] for each in found.supporters[head.name]]
    looked_for = _looked_for(head, supporters)
    value = dict(said.votes[index].answers[head.name].value)
    content = digest({"value": value, "array": None, "annotated_classes": sorted(looked_for)})
    if current is not None and current.source == "human" and current.content_sha256 == content:
        return False
    revise(
        session,
        earlier,
        project_id=task.project_id,
        subject_id=task.subject_id,
        ontology_id=task.ontology_id,
        head=head.name,
        source="human",
        value=value,
        array_blob_id=None,
        annotated_classes=looked_for,
        annotation_ids=[str(said.rows[index].id), *(str(row.id) for row in supporters if row is not said.rows[index])],
        content_sha256=content,
        created_by=f"annotator:{said.rows[index].annotator}",
    )
    return True


def _looked_for(head: Head, supporters: Sequence[Annotation]) -> list[str]:
    """The classes that all of them looked for, in the head's order."""
    lists = [set(row.classes_annotated.get(head.name, ())) for row in supporters]
    return [name for name in head.classes if all(name in looked for looked in lists)]


# --- the queue and its tasks ----------------------------------------------------------------------------------------


def _settle(
    session: Session, items: Sequence[QueueItem], tasks: Sequence[LabelTask], said: _Said, found: Verdict
) -> None:
    """Move the items and tasks to where the verdict puts them."""
    unasked = [t for t in tasks if t.state in label_tasks.LIVE and not label_tasks.is_annotated(session, t.id)]
    if not said.votes:
        _reopen(session, items, tasks, unasked, said)
        return
    now = session.execute(select(func.clock_timestamp())).scalar_one()
    for task in tasks:
        if task.id in said.answered and task.state in label_tasks.LIVE:
            task.state, task.done_at = "done", now
    if found.outcome is Outcome.SETTLED:
        _labelled(session, items, found)
    elif found.outcome is Outcome.UNUSABLE:
        by = ", ".join(vote.annotator for vote in said.votes if vote.said is Said.UNUSABLE)
        _drop(session, items, f"unusable, says {by}")
    elif found.outcome is Outcome.SKIPPED:
        _ask_somebody_else(session, items, bool(unasked), said.asked)
    elif said.asked >= MOST_ASKED and not unasked:
        what = f"on {', '.join(found.disputed)}" if found.disputed else "of enough people"
        _drop(session, items, f"no agreement {what} after {said.asked} annotations", **_dispute(found))
    else:
        another = unasked[0] if unasked else _one_more(session, items, tasks)
        for item in items:
            label_tasks.move(session, item, "open", another.id if another else None, problem=None, **_dispute(found))
    # What no item waits for any more is taken out of the label tool by the next push.


def _labelled(session: Session, items: Sequence[QueueItem], found: Verdict) -> None:
    decided = {*found.chosen, *found.unanswered}
    for item in items:
        if set(item.heads) <= decided:
            missing = sorted(set(item.heads) & set(found.unanswered)) or None
            label_tasks.move(
                session, item, "labelled", adjudication=None, problem=None, skipped=None, not_answered=missing
            )
        elif item.state == "open" and not _live(session, item):
            item.task_id = None
            label_tasks.move(session, item, "queued")  # its other heads need a task of their own


def _live(session: Session, item: QueueItem) -> bool:
    return label_tasks.live_task(session, item.subject_id, item.ontology_id) is not None


def _drop(session: Session, items: Sequence[QueueItem], why: str, **notes: Any) -> None:
    for item in items:
        label_tasks.move(session, item, "dropped", dropped=why, problem=None, **notes)


def _dispute(found: Verdict) -> dict[str, Any]:
    disputed = {head: round(found.agreement.get(head, 0.0), 3) for head in found.disputed}
    return {"adjudication": disputed or None}


def _ask_somebody_else(session: Session, items: Sequence[QueueItem], asked: bool, skips: int) -> None:
    if skips > MOST_SKIPS:
        _drop(session, items, f"skipped {skips} times")
        return
    for item in items:
        if not asked:  # else another task is out already
            item.task_id = None
            label_tasks.move(session, item, "queued", skipped=skips, problem=None)


def _one_more(session: Session, items: Sequence[QueueItem], tasks: Sequence[LabelTask]) -> LabelTask | None:
    """An intent for one more person to be asked, blind, so that nobody's say leans on a model's."""
    if not items:
        return None
    used = {task.slot for task in tasks}
    session.flush()
    return label_tasks.add(
        session,
        project_id=tasks[0].project_id,
        subject_id=tasks[0].subject_id,
        ontology_id=tasks[0].ontology_id,
        slot=max(used) + 1,
        heads=sorted({head for item in items for head in item.heads}),
        blind=True,
        model_version_id=None,
    )


def _reopen(
    session: Session,
    items: Sequence[QueueItem],
    tasks: Sequence[LabelTask],
    unasked: Sequence[LabelTask],
    said: _Said,
) -> None:
    """Nobody's say stands: what was deleted, or can't be understood, is open again, and shows why."""
    task = unasked[0] if unasked else next((t for t in reversed(tasks) if t.state != "cancelled"), None)
    if task is None or not items:
        return
    if task.state == "done":
        task.state, task.done_at = "open", None
    for item in items:
        label_tasks.move(session, item, "open", task.id, problem="; ".join(said.problems) or None, adjudication=None)
