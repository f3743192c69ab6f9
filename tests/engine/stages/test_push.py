"""Push against a real Label Studio: a window in our order, blind where it must be, one live task a subject."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import replace
from typing import Any

import pytest
from labeling_fixtures import PERSON_HEADS, Desk, Tool
from sqlalchemy import func, select

from engine.adapters.redaction import BoxRedactor
from engine.domain.answers import Answer
from engine.domain.ontology import Kind, Ontology
from engine.domain.refusals import Conflict
from engine.ports import LabelToolUnavailable, TaskDraft
from engine.stages import curate
from engine.stages.drafts import worth_showing
from engine.stages.push import lock_name
from engine.store import advisory_lock
from engine.store.tables.recordings import Frame
from engine.store.tables.work import Job, Schedule

pytestmark = pytest.mark.label_studio


def test_the_window_is_filled_in_the_queues_order(desk: Desk, tool: Tool) -> None:
    items = desk.queue(desk.campaign(), range(6))
    assert desk.push(tool.bridge, window=4).state == "done"
    assert [desk.item(item).state for item in items] == ["open"] * 4 + ["queued"] * 2
    there = tool.tasks(desk.ontology)
    assert [uuid.UUID(task["data"]["key"]) for task in there] == [desk.item(item).task_id for item in items[:4]]
    assert {task.tool_task for task in desk.tasks("open")} == {task["id"] for task in there}
    desk.push(tool.bridge, window=4)
    assert len(tool.tasks(desk.ontology)) == 4
    desk.push(tool.bridge, window=5)
    assert [desk.item(item).state for item in items] == ["open"] * 5 + ["queued"]


def test_a_task_shows_the_frame_its_reason_and_the_models_answers(desk: Desk, tool: Tool) -> None:
    desk.queue(desk.campaign("fog at night"), [3])
    desk.push(tool.bridge)
    (task,) = tool.tasks(desk.ontology)
    data = task["data"]
    assert data["heads"] == PERSON_HEADS
    assert (data["width"], data["height"], data["model_version"]) == (96, 64, "v1")
    assert data["meta"] == {
        "campaign": "fog at night",
        "reason": "objects uncertain, 98th percentile",
        "drive_external_id": "d-1",
        "clip_external_id": "d-1-c01",
        "stream": "front",
        "pts": str(3 * 1024),
    }
    sha256 = data["image"].rsplit("/", 1)[1]
    assert desk.blobs.read(sha256).startswith(b"\x89PNG")
    (prediction,) = task["predictions"]
    assert sorted({result["from_name"] for result in prediction["result"]}) == sorted(PERSON_HEADS)


def test_control_is_labelled_blind(desk: Desk, tool: Tool) -> None:
    desk.queue(desk.campaign(), [0], arm="control")
    desk.push(tool.bridge)
    (task,) = tool.tasks(desk.ontology)
    assert task["predictions"] == []
    assert not task["data"]["prediction_shown"]
    assert "reason" not in task["data"]["meta"]
    assert not {"random", "control", "uncertain"} & set(re.findall(r"\w+", json.dumps(task["data"])))
    assert desk.tasks()[0].blind


def test_nothing_leaves_without_the_redactor(desk: Desk, tool: Tool) -> None:
    desk.redactor = BoxRedactor({1024: [(0.1, 0.1, 0.9, 0.9)]})
    desk.queue(desk.campaign(), [0, 1])
    desk.push(tool.bridge)
    shown = [desk.blobs.read(task["data"]["image"].rsplit("/", 1)[1]) for task in tool.tasks(desk.ontology)]
    plain, hidden = (desk.reader.decode_image(png) for png in shown)
    assert replace(desk.redactor.redact(replace(plain, pts=1024)), pts=0).rgb != plain.rgb
    assert len(set(hidden.rgb)) < len(set(plain.rgb)), "the blurred picture has fewer values"


def test_a_second_campaign_is_attached_to_the_live_task(desk: Desk, tool: Tool) -> None:
    (first,) = desk.queue(desk.campaign("cars", ["objects"]), [0])
    desk.push(tool.bridge)
    (before,) = tool.tasks(desk.ontology)
    (second,) = desk.queue(desk.campaign("roads", ["driveable"]), [0], arm="control")
    desk.push(tool.bridge)
    (task,) = tool.tasks(desk.ontology)
    assert task["id"] != before["id"], "the task in the tool asked for less"
    assert task["data"]["key"] == before["data"]["key"]
    assert task["data"]["heads"] == ["objects", "driveable"]
    assert task["data"]["meta"]["campaign"] == "cars, roads"
    assert task["predictions"] == [], "one of the two is control"
    (row,) = desk.tasks()
    assert (row.state, row.tool_task) == ("open", task["id"])
    assert desk.item(first).task_id == desk.item(second).task_id == row.id


def drop(desk: Desk, item: uuid.UUID) -> None:
    with desk.database.unit() as unit:
        curate.drop(unit, desk.project_id, item, "blurred", "tester")
        unit.commit()


def test_a_dropped_item_takes_its_task_out_of_the_tool(desk: Desk, tool: Tool) -> None:
    items = desk.queue(desk.campaign(), [0, 1])
    desk.push(tool.bridge)
    drop(desk, items[0])
    with desk.read() as session:
        assert session.scalar(select(func.count()).where(Job.kind == "push", Job.state == "due")) == 1
    desk.push(tool.bridge)
    (left,) = tool.tasks(desk.ontology)
    assert uuid.UUID(left["data"]["key"]) == desk.item(items[1]).task_id
    assert [task.tool_task for task in desk.tasks("cancelled")] == [None]
    with desk.database.unit() as unit:
        curate.restore(unit, desk.project_id, items[0], "tester")
        unit.commit()
    desk.push(tool.bridge)
    keys = {uuid.UUID(task["data"]["key"]) for task in tool.tasks(desk.ontology)}
    assert keys == {desk.item(item).task_id for item in items}


def test_a_task_that_another_item_wants_outlives_a_drop(desk: Desk, tool: Tool) -> None:
    (first,) = desk.queue(desk.campaign("cars"), [0])
    (second,) = desk.queue(desk.campaign("all of it"), [0])
    desk.push(tool.bridge)
    (before,) = tool.tasks(desk.ontology)
    drop(desk, first)
    desk.push(tool.bridge)
    assert [task["id"] for task in tool.tasks(desk.ontology)] == [before["id"]]
    assert desk.item(second).state == "open"


def test_what_somebody_has_answered_is_not_dropped(desk: Desk, tool: Tool) -> None:
    (item,) = desk.queue(desk.campaign(annotators=2), [0])
    desk.push(tool.bridge)
    tool.say(tool.tasks(desk.ontology)[1]["id"], desk.ontology, {"weather": Answer(Kind.CHOICE, {"choice": "fog"})})
    desk.collect(tool.bridge)
    assert desk.item(item).state == "open"
    with pytest.raises(Conflict, match="is answered"):
        drop(desk, item)


def test_a_queued_item_that_is_dropped_is_never_pushed(desk: Desk, tool: Tool) -> None:
    items = desk.queue(desk.campaign(), [0, 1])
    drop(desk, items[0])
    desk.push(tool.bridge)
    assert len(tool.tasks(desk.ontology)) == 1


def test_a_frame_that_no_longer_decodes_is_given_up_with_its_reason(desk: Desk, tool: Tool) -> None:
    items = desk.queue(desk.campaign(), [0, 1])
    with desk.database.unit() as unit:
        unit.session.get_one(Frame, desk.frames[0]).pts = 7
        unit.commit()
    assert desk.push(tool.bridge).state == "done"
    assert [desk.item(item).state for item in items] == ["dropped", "open"]
    assert "picture is not to be had" in desk.item(items[0]).reason["dropped"]
    assert len(tool.tasks(desk.ontology)) == 1


class TimesOut:
    """The bridge, with calls whose answer is lost: their tasks are made all the same, at once or `late`."""

    def __init__(self, tool: Tool, late: bool) -> None:
        self._bridge, self._late = tool.bridge, late
        self.pending: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bridge, name)

    def create_tasks(self, number: int, ontology: Ontology, drafts: list[TaskDraft]) -> None:
        if self._late:
            self.pending.append((number, ontology, drafts))
        else:
            self._bridge.create_tasks(number, ontology, drafts)
        raise LabelToolUnavailable("the answer is lost")

    def land(self) -> None:
        for call in self.pending:
            self._bridge.create_tasks(*call)


def test_a_lost_answer_makes_no_second_task(desk: Desk, tool: Tool) -> None:
    desk.queue(desk.campaign(), [0, 1])
    job = desk.push(TimesOut(tool, late=False))  # type: ignore[arg-type]
    assert (job.state, job.attempt) == ("due", 0), "postponed, no attempt spent"
    assert len(desk.tasks("intended")) == 2
    assert desk.push(tool.bridge).state == "done"
    assert len(tool.tasks(desk.ontology)) == 2
    assert len(desk.tasks("open")) == 2


def test_a_call_that_lands_late_leaves_one_live_task(desk: Desk, tool: Tool) -> None:
    desk.queue(desk.campaign(), [0, 1])
    lossy = TimesOut(tool, late=True)
    desk.push(lossy)  # type: ignore[arg-type]
    desk.push(tool.bridge)
    first = tool.tasks(desk.ontology)
    lossy.land()
    assert len(tool.tasks(desk.ontology)) == 4
    desk.reconcile(tool.bridge)
    assert tool.tasks(desk.ontology) == first, "the lowest id wins"


def test_of_doubles_the_annotated_one_stays(desk: Desk, tool: Tool) -> None:
    (item,) = desk.queue(desk.campaign(), [0])
    lossy = TimesOut(tool, late=True)
    desk.push(lossy)  # type: ignore[arg-type]
    desk.push(tool.bridge)
    lossy.land()
    first, second = tool.tasks(desk.ontology)
    tool.annotate(second["id"], [])
    desk.reconcile(tool.bridge)
    assert [task["id"] for task in tool.tasks(desk.ontology)] == [second["id"]] != [first["id"]]
    assert desk.tasks("open")[0].tool_task == second["id"]
    desk.collect(tool.bridge)
    assert desk.item(item).state == "labelled"


def test_a_task_that_somebody_deleted_in_the_tool_is_made_again(desk: Desk, tool: Tool) -> None:
    desk.queue(desk.campaign(), [0])
    desk.push(tool.bridge)
    (task,) = tool.tasks(desk.ontology)
    tool.bridge.delete_tasks([task["id"]])
    desk.reconcile(tool.bridge)
    desk.push(tool.bridge)
    (again,) = tool.tasks(desk.ontology)
    assert again["data"]["key"] == task["data"]["key"]
    assert desk.tasks("open")[0].tool_task == again["id"]


def test_two_people_are_asked_where_the_campaign_wants_two(desk: Desk, tool: Tool) -> None:
    items = desk.queue(desk.campaign(annotators=2), [0, 1])
    desk.push(tool.bridge, window=3)
    assert [desk.item(item).state for item in items] == ["open", "open"]
    assert sorted((task.subject_id, task.slot) for task in desk.tasks("open")) == sorted(
        (desk.frames[number], slot) for number in (0, 1) for slot in (0, 1)
    )
    assert len(tool.tasks(desk.ontology)) == 4


def test_a_tool_that_was_set_up_anew_gets_its_tasks_again(desk: Desk, tool: Tool) -> None:
    desk.queue(desk.campaign(), [0, 1, 2])
    desk.push(tool.bridge, window=2)
    lost = tool.bridge.ensure_project(desk.ontology)
    tool.rest.delete(f"/api/projects/{lost}/").raise_for_status()
    desk.push(tool.bridge, window=3)
    desk.push(tool.bridge, window=3)
    there = tool.tasks(desk.ontology)
    assert sorted(task["data"]["key"] for task in there) == sorted(str(task.id) for task in desk.tasks("open"))
    assert len(there) == 3
    assert {task.tool_project for task in desk.tasks("open")} == {tool.bridge.ensure_project(desk.ontology)} != {lost}


def test_one_worker_at_a_time_makes_an_ontologys_tasks(desk: Desk, tool: Tool) -> None:
    desk.queue(desk.campaign(), [0])
    with advisory_lock.held(desk.database.engine, lock_name(desk.ontology_id)) as ours:
        assert ours
        for job in (desk.push(tool.bridge), desk.reconcile(tool.bridge)):
            assert (job.state, job.attempt) == ("due", 0)
    assert desk.push(tool.bridge).state == "done"
    assert len(desk.tasks("open")) == 1


def test_the_first_push_makes_the_schedules(desk: Desk, tool: Tool) -> None:
    desk.queue(desk.campaign(), [0])
    desk.push(tool.bridge)
    with desk.read() as session:
        rows = session.execute(select(Schedule.job_kind, Schedule.job_payload).order_by(Schedule.name)).all()
    assert [tuple(row) for row in rows] == [("collect", {}), ("push", {}), ("collect", {"reconcile": True})]


def test_unsure_objects_are_not_drawn_for_people() -> None:
    objects = [{"id": "a", "class": "car", "box": [0, 0, 1, 1], "score": score} for score in (0.9, 0.1)]
    assert worth_showing(Answer(Kind.BOXES, {"objects": objects})).value == {"objects": objects[:1]}
