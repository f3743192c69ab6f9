"""Collect and accept against a real Label Studio: what people do there becomes annotations, and these become labels."""

from __future__ import annotations

from typing import Any

import pytest
from labeling_fixtures import ANSWERS, PERSON_HEADS, Desk, Tool, car, road
from sqlalchemy import select

from engine.adapters.label_studio.codecs.regions import PICTURE
from engine.adapters.label_studio.results import NOT_ANSWERED, UNUSABLE, to_results
from engine.domain.answers import Answer
from engine.domain.ontology import Kind
from engine.ports import LabelToolUnavailable
from engine.stages.collect import hint
from engine.store import advisory_lock
from engine.store.tables.labels import ToolProject
from engine.store.tables.metadata import new_id
from engine.store.tables.work import Job
from services.simulation.sign_up import sign_up

pytestmark = pytest.mark.label_studio


def marked(control: str, choice: str) -> dict[str, Any]:
    return {"id": "m1", "from_name": control, "to_name": PICTURE, "type": "choices", "value": {"choices": [choice]}}


def pushed(desk: Desk, tool: Tool, frames: int = 1, arm: str = "chosen", **settings: Any) -> list[int]:
    """The tool's ids of the tasks of so many frames."""
    desk.queue(desk.campaign(**settings), range(frames), arm)
    desk.push(tool.bridge)
    return [task["id"] for task in tool.tasks(desk.ontology)]


def test_an_answer_of_every_kind_becomes_a_label(desk: Desk, tool: Tool) -> None:
    (task,) = pushed(desk, tool)
    tool.say(task, desk.ontology, ANSWERS)
    assert desk.collect(tool.bridge).state == "done"
    labels = {label.head: label for label in desk.labels()}
    assert sorted(labels) == sorted(PERSON_HEADS)
    (annotation,) = desk.annotations()
    for head, label in labels.items():
        assert (label.source, label.revision, label.subject_id) == ("human", 1, desk.frames[0])
        assert label.annotation_ids == [str(annotation.id)]
        assert label.annotated_classes == list(desk.ontology.head(head).classes)
        assert label.created_by == f"annotator:{annotation.annotator}"
    assert labels["driveable"].value == ANSWERS["driveable"].value
    assert labels["weather"].value == ANSWERS["weather"].value
    (line,) = labels["lanes"].value["lines"]
    assert (line["id"], line["class"]) == ("l1", "solid")
    assert labels["objects"].value["objects"][0]["box"] == pytest.approx([0.1, 0.2, 0.5, 0.75])
    assert (annotation.outcome, annotation.lead_time_s, annotation.prediction_shown) == ("submitted", 12.5, True)
    assert annotation.heads_answered == sorted(PERSON_HEADS)
    assert annotation.classes_annotated["objects"] == ["car", "truck"]
    assert desk.items()[0].state == "labelled"
    (row,) = desk.tasks()
    assert row.state == "done"
    assert row.done_at is not None


def test_empty_is_a_label_and_skipped_is_none(desk: Desk, tool: Tool) -> None:
    empty, skipped = pushed(desk, tool, 2, arm="control")
    tool.annotate(empty, [])
    tool.annotate(skipped, [], was_cancelled=True)
    desk.collect(tool.bridge)
    labels = {label.head: label.value for label in desk.labels()}
    assert labels["objects"] == {"objects": []}
    assert labels["lanes"] == {"lines": []}
    assert labels["driveable"]["runs"] == [[0, 96 * 64]]
    assert "weather" not in labels, "a choice that was not made is no answer"
    assert {label.subject_id for label in desk.labels()} == {desk.frames[0]}
    first, second = desk.items()
    assert (first.state, first.reason["not_answered"]) == ("labelled", ["weather"])
    assert (second.state, second.reason["skipped"]) == ("queued", 1)
    assert {a.outcome for a in desk.annotations()} == {"submitted", "skipped"}
    assert not any(a.prediction_shown for a in desk.annotations())
    desk.push(tool.bridge)
    assert len(tool.tasks(desk.ontology)) == 3, "somebody else is asked"


def test_unusable_drops_and_not_answered_leaves_the_head_out(desk: Desk, tool: Tool) -> None:
    black, doubtful = pushed(desk, tool, 2)
    tool.annotate(black, [marked(UNUSABLE, "unusable")])
    tool.annotate(doubtful, [marked(NOT_ANSWERED, "lanes"), marked("weather", "fog")])
    desk.collect(tool.bridge)
    assert {(label.subject_id, label.head) for label in desk.labels()} == {
        (desk.frames[1], head) for head in ("objects", "driveable", "weather")
    }
    first, second = desk.items()
    assert (first.state, second.state) == ("dropped", "labelled")
    assert "unusable" in first.reason["dropped"]


def test_reading_again_records_nothing_twice(desk: Desk, tool: Tool) -> None:
    (task,) = pushed(desk, tool)
    tool.say(task, desk.ontology, ANSWERS)
    for _ in range(3):
        desk.collect(tool.bridge)
    assert len(desk.annotations()) == 1
    assert len(desk.labels(current=False)) == len(PERSON_HEADS)
    with desk.read() as session:
        assert session.scalars(select(ToolProject.collected_until)).one() == desk.annotations()[0].tool_updated_at


def test_an_edit_is_a_revision_that_supersedes(desk: Desk, tool: Tool) -> None:
    (task,) = pushed(desk, tool)
    clear = {**ANSWERS, "weather": Answer(Kind.CHOICE, {"choice": "clear"})}
    annotation = tool.say(task, desk.ontology, clear)
    desk.collect(tool.bridge)
    body = {"result": to_results(desk.ontology, PERSON_HEADS, ANSWERS, 96, 64)}
    tool.rest.patch(f"/api/annotations/{annotation}/", json=body).raise_for_status()
    desk.collect(tool.bridge)
    assert [(a.tool_annotation, a.revision) for a in desk.annotations()] == [(annotation, 1), (annotation, 2)]
    old, new = [label for label in desk.labels(current=False) if label.head == "weather"]
    assert (old.value["choice"], old.superseded_by_id) == ("clear", new.id)
    assert (new.value["choice"], new.superseded_by_id, new.revision) == ("fog", None, 2)
    assert new.annotation_ids == [str(desk.annotations()[1].id)]
    assert len([label for label in desk.labels(current=False) if label.head == "lanes"]) == 1, "it says the same still"


def test_a_deleted_annotation_withdraws_its_labels_and_opens_the_task(desk: Desk, tool: Tool) -> None:
    (task,) = pushed(desk, tool)
    annotation = tool.say(task, desk.ontology, ANSWERS)
    desk.collect(tool.bridge)
    tool.rest.delete(f"/api/annotations/{annotation}/").raise_for_status()
    desk.collect(tool.bridge)
    assert desk.labels() == []
    assert len(desk.labels(current=False)) == len(PERSON_HEADS), "what was accepted once stays on record"
    assert desk.annotations()[0].deleted_at is not None
    assert desk.items()[0].state == "open"
    assert [row.tool_task for row in desk.tasks("open")] == [task]
    tool.say(task, desk.ontology, ANSWERS)
    desk.collect(tool.bridge)
    assert {label.revision for label in desk.labels()} == {2}


def test_what_cannot_be_understood_is_kept_and_shown(desk: Desk, tool: Tool) -> None:
    (task,) = pushed(desk, tool)
    annotation = tool.annotate(task, [marked("bridges", "stone")])
    desk.collect(tool.bridge)
    assert desk.labels() == []
    (row,) = desk.annotations()
    assert "bridges" in (row.problem or "")
    (item,) = desk.items()
    assert (item.state, "bridges" in item.reason["problem"]) == ("open", True)
    tool.rest.patch(f"/api/annotations/{annotation}/", json={"result": []}).raise_for_status()
    desk.collect(tool.bridge)
    (item,) = desk.items()
    assert item.state == "labelled"
    assert "problem" not in item.reason


def test_two_that_disagree_need_a_third(desk: Desk, tool: Tool, label_studio: Any) -> None:
    people = [tool]
    for name in ("b", "c"):
        token = sign_up(label_studio.url, label_studio.token, f"collect-{name}@example.com", "a long enough passphrase")
        people.append(Tool(tool.url, token, tool.prefix))
    first, second = pushed(desk, tool, annotators=2, heads=["objects", "driveable"])
    left, right = {"objects": car(0.1), "driveable": road()}, {"objects": car(0.5), "driveable": road(41)}
    people[0].say(first, desk.ontology, left)
    desk.collect(tool.bridge)
    assert desk.labels() == [], "two were to be asked"
    people[1].say(second, desk.ontology, right)
    desk.collect(tool.bridge)
    assert [label.head for label in desk.labels()] == ["driveable"]
    (item,) = desk.items()
    assert (item.state, item.reason["adjudication"]) == ("open", {"objects": 0.0})
    desk.push(tool.bridge)
    third = tool.tasks(desk.ontology)[-1]
    assert (third["id"] in (first, second), third["predictions"]) == (False, [])
    assert "reason" not in third["data"]["meta"]  # blind: who decides is not told that others disagreed
    people[2].say(third["id"], desk.ontology, {"objects": car(0.52), "driveable": road()})
    desk.collect(tool.bridge)
    labels = {label.head: label for label in desk.labels()}
    assert labels["objects"].value["objects"][0]["box"][0] == pytest.approx(0.5)
    assert len(labels["objects"].annotation_ids) == 2
    assert desk.items()[0].state == "labelled"
    for person in people[1:]:
        person.close()


class Away:
    """The bridge of a tool that is away."""

    def task_annotations(self, *_: Any) -> Any:
        raise LabelToolUnavailable("away")


def test_while_the_tool_is_away_collecting_waits(desk: Desk, tool: Tool) -> None:
    pushed(desk, tool)
    job = desk.collect(Away())  # type: ignore[arg-type]
    assert (job.state, job.attempt) == ("due", 0)


def test_one_collection_at_a_time(desk: Desk, tool: Tool) -> None:
    (task,) = pushed(desk, tool)
    tool.say(task, desk.ontology, ANSWERS)
    with advisory_lock.held(desk.database.engine, f"annotations of {desk.ontology_id}"):
        job = desk.collect(tool.bridge)
    assert (job.state, job.attempt, desk.annotations()) == ("due", 0, [])


def test_a_strangers_task_is_left_alone(desk: Desk, tool: Tool) -> None:
    (task,) = pushed(desk, tool)
    data = tool.tasks(desk.ontology)[0]["data"]
    number = tool.bridge.ensure_project(desk.ontology)
    for key in ("not an id", str(new_id())):
        body = [{"data": {**data, "key": key}}]
        tool.rest.post(f"/api/projects/{number}/import", json=body).raise_for_status()
    for each in tool.tasks(desk.ontology):
        tool.say(each["id"], desk.ontology, ANSWERS)
    assert desk.collect(tool.bridge).state == "done"
    assert [row.task_id for row in desk.annotations()] == [desk.tasks()[0].id]
    desk.reconcile(tool.bridge)
    assert len(tool.tasks(desk.ontology)) == 3
    assert task == desk.tasks()[0].tool_task


def test_a_hint_makes_one_collection_due(desk: Desk, tool: Tool) -> None:
    pushed(desk, tool)
    with desk.database.unit() as unit:
        assert hint(unit, desk.project_id) + hint(unit, desk.project_id) in (1, 2)  # a second may end in between
        unit.commit()
    with desk.read() as session:
        kinds = session.scalars(select(Job.subject_id).where(Job.kind == "collect", Job.state == "due")).all()
    assert set(kinds) == {desk.ontology_id}
