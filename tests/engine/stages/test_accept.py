"""Accept: from annotations that stand to labels, and to where the queue's items go. Rows alone, no label tool."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from labeling_fixtures import ANSWERS, Desk, car, road
from sqlalchemy import select, update

from engine.domain.answers import Answer
from engine.domain.ontology import Kind
from engine.jobs import ledger
from engine.stages import accept as stage
from engine.store import annotation_revisions, label_tasks
from engine.store.label_revisions import lock_subjects, revise, revisions
from engine.store.tables.labels import Annotation, LabelTask, QueueItem
from engine.store.tables.metadata import new_id
from engine.store.tables.work import Job

TWO = ("objects", "driveable")


def opened(desk: Desk, frame: int = 0, *, heads: tuple[str, ...] = TWO, slot: int = 0, **settings: Any) -> uuid.UUID:
    """An open task of a queued frame, as a push leaves it."""
    if slot == 0:
        desk.queue(desk.campaign(str(new_id()), heads, **settings), [frame])
    with desk.database.unit() as unit:
        task = label_tasks.add(
            unit.session, project_id=desk.project_id, subject_id=desk.frames[frame], ontology_id=desk.ontology_id,
            slot=slot, heads=list(heads), blind=False, model_version_id=None,
        )  # fmt: skip
        task.state, task.tool_task, task.tool_project = "open", 100 + frame * 10 + slot, 1
        if slot == 0:
            unit.session.execute(
                update(QueueItem)
                .where(QueueItem.subject_id == desk.frames[frame], QueueItem.state == "queued")
                .values(state="open", task_id=task.id)
            )
        unit.commit()
    return task.id


def say(
    desk: Desk,
    task_id: uuid.UUID,
    answers: Mapping[str, Answer] | None = None,
    by: str = "ann",
    outcome: str = "submitted",
    number: int | None = None,
) -> int:
    """An annotation, as a collection leaves it; given the `number` of an earlier one, its next revision."""
    with desk.database.unit() as unit:
        session = unit.session
        known = annotation_revisions.latest(session, desk.project_id, [number]) if number else {}
        count = len(session.scalars(select(Annotation)).all())
        row = annotation_revisions.add(
            session, known.get(number or 0), project_id=desk.project_id, task_id=task_id,
            tool_annotation=number or 1000 + count, payload_sha256=str(count), annotator=by, outcome=outcome,
            lead_time_s=1.0, prediction_shown=False, heads_answered=sorted(answers or {}),
            classes_annotated={head: list(desk.ontology.head(head).classes) for head in answers or {}},
            answers={head: {"kind": str(a.kind), "value": dict(a.value)} for head, a in (answers or {}).items()},
            payload={"task": 1}, problem=None, tool_updated_at="2026-01-01T00:00:00Z",
        )  # fmt: skip
        unit.commit()
    assert desk.accept(task_id).state == "done"
    return row.tool_annotation


def unsay(desk: Desk, task_id: uuid.UUID, number: int) -> None:
    with desk.database.unit() as unit:
        found = annotation_revisions.latest(unit.session, desk.project_id, [number])
        annotation_revisions.delete(unit.session, list(found.values()))
        unit.commit()
    assert desk.accept(task_id).state == "done"


SAID = {"objects": car(), "driveable": road()}


def heads(desk: Desk) -> list[str]:
    return sorted(label.head for label in desk.labels())


def test_who_lost_the_lease_writes_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    task = opened(desk)

    def lost(*_: Any) -> None:
        raise ledger.LeaseLost("taken back")

    with monkeypatch.context() as patched:
        patched.setattr(ledger, "complete", lost)
        with pytest.raises(AssertionError, match="leased"):
            say(desk, task, SAID)
    assert desk.labels() == []
    assert (desk.tasks()[0].state, desk.items()[0].state) == ("open", "open")
    with desk.read() as session:
        assert session.scalars(select(Job).where(Job.kind == "push")).all() == []


def test_a_submission_labels_the_wanted_heads_and_makes_a_push_due(desk: Desk) -> None:
    say(desk, opened(desk), SAID)
    assert heads(desk) == ["driveable", "objects"]
    assert (desk.items()[0].state, desk.tasks()[0].state) == ("labelled", "done")
    with desk.read() as session:
        due = session.scalars(select(Job).where(Job.kind == "push")).all()
    assert [(job.state, job.subject_id) for job in due] == [("due", desk.ontology_id)]


def test_heads_that_are_not_for_people_are_never_touched(desk: Desk) -> None:
    with desk.database.unit() as unit:
        lock_subjects(unit.session, [desk.frames[0]])
        revise(
            unit.session, [], project_id=desk.project_id, subject_id=desk.frames[0], ontology_id=desk.ontology_id,
            head="depth", source="sensor", value={"size": [1, 1]}, array_blob_id=None, annotated_classes=None,
            annotation_ids=[], content_sha256="d", created_by="device:x",
        )  # fmt: skip
        unit.commit()
    task = opened(desk, heads=("objects", "depth"))
    number = say(desk, task, {"objects": car()})
    unsay(desk, task, number)
    assert heads(desk) == ["depth"]


def test_a_persons_label_supersedes_an_imported_one(desk: Desk) -> None:
    with desk.database.unit() as unit:
        revise(
            unit.session, [], project_id=desk.project_id, subject_id=desk.frames[0], ontology_id=desk.ontology_id,
            head="objects", source="import", value={"objects": []}, array_blob_id=None, annotated_classes=None,
            annotation_ids=[], content_sha256="i", created_by="token:x",
        )  # fmt: skip
        unit.commit()
    task = opened(desk)
    number = say(desk, task, {"driveable": road()})
    assert [label.source for label in desk.labels() if label.head == "objects"] == ["import"], "nobody said otherwise"
    say(desk, task, SAID, number=number)
    (label,) = (label for label in desk.labels() if label.head == "objects")
    assert (label.source, label.revision) == ("human", 2)


def test_skipped_is_asked_again_a_few_times_and_then_dropped(desk: Desk) -> None:
    task = opened(desk)
    for round_ in range(1, stage.MOST_SKIPS + 1):
        say(desk, task, outcome="skipped")
        (item,) = desk.items()
        assert (item.state, item.task_id, item.reason["skipped"]) == ("queued", None, round_)
        with desk.database.unit() as unit:
            again = label_tasks.add(
                unit.session, project_id=desk.project_id, subject_id=desk.frames[0], ontology_id=desk.ontology_id,
                slot=0, heads=list(TWO), blind=False, model_version_id=None,
            )  # fmt: skip
            label_tasks.move(unit.session, unit.session.get_one(QueueItem, item.id), "open", again.id)
            unit.commit()
        task = again.id
    say(desk, task, outcome="skipped")
    (item,) = desk.items()
    assert (item.state, item.reason["dropped"]) == ("dropped", "skipped 3 times")
    assert desk.labels() == []


def test_a_submission_after_a_skip_counts_and_frees_the_task_that_was_asked_instead(desk: Desk) -> None:
    first = opened(desk)
    number = say(desk, first, outcome="skipped")
    with desk.database.unit() as unit:
        second = label_tasks.add(
            unit.session, project_id=desk.project_id, subject_id=desk.frames[0], ontology_id=desk.ontology_id, slot=0,
            heads=list(TWO), blind=False, model_version_id=None,
        )  # fmt: skip
        label_tasks.move(unit.session, unit.session.get_one(QueueItem, desk.items()[0].id), "open", second.id)
        unit.commit()
    say(desk, first, SAID, number=number)
    assert desk.items()[0].state == "labelled"
    with desk.database.unit() as unit:
        assert label_tasks.cancel_unwanted(unit.session, desk.ontology_id) == 1
        unit.commit()
    assert [task.state for task in desk.tasks()] == ["done", "cancelled"]


def test_unusable_drops_every_item_of_the_subject(desk: Desk) -> None:
    task = opened(desk)
    desk.queue(desk.campaign("another"), [0])
    say(desk, task, outcome="unusable")
    assert {item.state for item in desk.items()} == {"dropped"}
    assert desk.items()[0].reason["dropped"] == "unusable, says ann"
    assert desk.tasks()[0].state == "done"


def test_an_edit_gives_a_revision_for_what_changed_alone(desk: Desk) -> None:
    task = opened(desk)
    number = say(desk, task, SAID)
    say(desk, task, {"objects": car(0.3), "driveable": road()}, number=number)
    with desk.read() as session:
        known = revisions(session, desk.ontology_id, [desk.frames[0]])
    assert [label.revision for label in known[desk.frames[0], "objects"]] == [1, 2]
    assert len(known[desk.frames[0], "driveable"]) == 1
    assert known[desk.frames[0], "objects"][0].superseded_by_id == known[desk.frames[0], "objects"][1].id


def test_a_head_that_is_no_longer_answered_loses_its_label(desk: Desk) -> None:
    task = opened(desk)
    number = say(desk, task, SAID)
    say(desk, task, {"objects": car()}, number=number)
    assert heads(desk) == ["objects"]
    assert desk.items()[0].reason["not_answered"] == ["driveable"]


def test_a_deletion_withdraws_and_opens_again(desk: Desk) -> None:
    task = opened(desk)
    number = say(desk, task, SAID)
    unsay(desk, task, number)
    assert desk.labels() == []
    assert all(label.superseded_by_id == label.id for label in desk.labels(current=False)), "withdrawn"
    assert (desk.items()[0].state, desk.tasks()[0].state) == ("open", "open")
    say(desk, task, SAID)
    assert {label.revision for label in desk.labels()} == {2}
    assert desk.items()[0].state == "labelled"


def test_the_same_person_twice_is_one_vote(desk: Desk) -> None:
    first, second = opened(desk, annotators=2), opened(desk, slot=1)
    say(desk, first, SAID)
    say(desk, second, {"objects": car(0.5), "driveable": road()})
    assert desk.labels() == []
    assert desk.items()[0].state == "open"
    (another,) = desk.tasks("intended")
    assert (another.slot, another.blind) == (2, True)


def test_two_who_agree_settle_and_are_both_named(desk: Desk) -> None:
    first, second = opened(desk, annotators=2), opened(desk, slot=1)
    say(desk, first, SAID)
    assert desk.labels() == []
    say(desk, second, {"objects": car(0.12), "driveable": road(41)}, by="bob")
    assert heads(desk) == ["driveable", "objects"]
    assert {len(label.annotation_ids) for label in desk.labels()} == {2}
    assert {label.created_by for label in desk.labels()} == {"annotator:ann"}
    assert {task.state for task in desk.tasks()} == {"done"}


def test_disagreement_withdraws_and_a_third_persons_say_decides(desk: Desk) -> None:
    task = opened(desk)
    say(desk, task, SAID)
    say(desk, task, {"objects": car(0.5), "driveable": road()}, by="bob")
    assert heads(desk) == ["driveable"], "what was accepted from one is disputed by the other"
    (item,) = desk.items()
    assert (item.state, item.reason["adjudication"]) == ("open", {"objects": 0.0})
    (third,) = desk.tasks("intended")
    assert item.task_id == third.id
    say(desk, third.id, {"objects": car(0.48), "driveable": road()}, by="cem")
    (label,) = (label for label in desk.labels() if label.head == "objects")
    assert label.value["objects"][0]["box"][0] == 0.5
    (item,) = desk.items()
    assert item.state == "labelled"
    assert "adjudication" not in item.reason


def test_people_who_never_agree_end_it(desk: Desk) -> None:
    task = opened(desk, heads=("objects",))
    for place in range(stage.MOST_ASKED):
        say(desk, task, {"objects": car(0.1 + 0.1 * place, ("car", "truck")[place % 2])}, by=f"person {place}")
        with desk.database.unit() as unit:
            for row in unit.session.scalars(select(LabelTask).where(LabelTask.state == "intended")):
                row.state, task = "open", row.id
            unit.commit()
    (item,) = desk.items()
    assert (item.state, item.reason["dropped"]) == ("dropped", "no agreement on objects after 5 annotations")
    assert desk.labels() == []


def test_a_verdict_that_was_overtaken_is_found_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    task = opened(desk)
    known, raced = stage.verdict, threading.Event()

    def slow(*arguments: Any) -> Any:
        if not raced.is_set():
            raced.set()
            with desk.database.unit() as unit:
                row = unit.session.scalars(select(Annotation)).one()
                fields = {c.key: getattr(row, c.key) for c in Annotation.__table__.columns}
                unit.session.add(Annotation(**{**fields, "id": new_id(), "revision": 2, "answers": {}}))
                unit.commit()
        return known(*arguments)

    monkeypatch.setattr(stage, "verdict", slow)
    with pytest.raises(AssertionError, match="due"):
        say(desk, task, SAID)
    assert desk.labels() == []
    assert desk.accept(task).state == "done"
    assert desk.labels() == [], "the newer revision answers nothing"
    assert desk.items()[0].reason["skipped"] == 1


def test_the_classes_are_those_that_every_supporter_looked_for(desk: Desk) -> None:
    task = opened(desk, heads=("objects",))
    say(desk, task, {"objects": car()})
    with desk.database.unit() as unit:
        unit.session.execute(update(Annotation).values(classes_annotated={"objects": ["car"]}))
        unit.commit()
    say(desk, task, {"objects": car()}, by="bob")
    assert [label.annotated_classes for label in desk.labels()] == [["car"]]


def test_an_unanswered_choice_leaves_the_item_labelled_without_it(desk: Desk) -> None:
    task = opened(desk, heads=("objects", "weather"))
    say(desk, task, {"objects": ANSWERS["objects"]})
    assert heads(desk) == ["objects"]
    assert desk.items()[0].state == "labelled"
    assert Kind.CHOICE is desk.ontology.head("weather").kind
