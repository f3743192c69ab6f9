"""The bridge against a real Label Studio: what we write it takes, what people do there we read right."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import httpx
import numpy as np
import pytest

from engine.adapters.label_studio.client import LabelStudioBridge
from engine.adapters.label_studio.codecs.regions import PICTURE
from engine.adapters.label_studio.results import NOT_ANSWERED, UNUSABLE, to_results
from engine.domain.answers import Answer, encode_runs
from engine.domain.ontology import Head, Kind, LabelTool, Ontology
from engine.ports import AnnotationOutcome, LabelToolRefused, LabelToolUnavailable, TaskDraft, ToolAnnotation
from services.simulation.sign_up import sign_up

pytestmark = pytest.mark.label_studio

CLASSES = ("car", 'person & "dog" <x>', "čłověk 人")
HEADS = (
    Head("objects", Kind.BOXES, CLASSES),
    Head("lanes", Kind.POLYLINES, ("solid", "dashed")),
    Head("drivable", Kind.MASK, ("road",)),
    Head("weather", Kind.CHOICE, ("clear", "fog")),
    Head("depth", Kind.DENSE_SCALAR, label_tool=LabelTool.MACHINE, unit="m"),
)
ONTOLOGY = Ontology("driving čł", 1, HEADS)
ALL = [head.name for head in HEADS]
WIDTH, HEIGHT = 160, 90


def road() -> np.ndarray:
    mask = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    mask[50:, 30:130] = 1
    return mask


ANSWERS = {
    "objects": Answer(
        Kind.BOXES,
        {"objects": [{"id": f"o{n}", "class": name, "box": [0.1, 0.2, 0.5, 0.75]} for n, name in enumerate(CLASSES)]},
    ),
    "lanes": Answer(
        Kind.POLYLINES, {"lines": [{"id": "l1", "class": "dashed", "points": [[0.1, 1.0], [0.2, 0.5], [0.4, 0.25]]}]}
    ),
    "drivable": Answer(Kind.MASK, {"size": [HEIGHT, WIDTH], "runs": encode_runs(road().tobytes())}),
    "weather": Answer(Kind.CHOICE, {"choice": "fog"}),
}


class Server(Protocol):
    url: str
    token: str


@pytest.fixture
def bridge(label_studio: Server) -> Iterator[LabelStudioBridge]:
    made = LabelStudioBridge(label_studio.url, label_studio.token, f"t {secrets.token_hex(4)}")
    yield made
    made.close()


@pytest.fixture
def rest(label_studio: Server) -> Iterator[httpx.Client]:
    """The tool's API, past the bridge: a person's hand."""
    headers = {"Authorization": f"Token {label_studio.token}"}
    with httpx.Client(base_url=label_studio.url, headers=headers, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture
def project(bridge: LabelStudioBridge) -> int:
    return bridge.ensure_project(ONTOLOGY)


Annotate = Callable[..., int]


@pytest.fixture
def annotate(rest: httpx.Client) -> Annotate:
    def post(task: int, results: list[dict[str, Any]], **more: Any) -> int:
        body = {"result": results, "lead_time": 12.5, **more}
        answer = rest.post(f"/api/tasks/{task}/annotations/", json=body)
        answer.raise_for_status()
        return int(answer.json()["id"])

    return post


def draft(key: str, **more: Any) -> TaskDraft:
    fields = {
        "picture_url": "http://127.0.0.1:9/p.png?sig=a%2Bb",
        "width": WIDTH,
        "height": HEIGHT,
        "heads": ALL,
        "predictions": {},
    }
    return TaskDraft(**{"key": key, **fields, **more})


def make(bridge: LabelStudioBridge, project: int, *drafts: TaskDraft) -> list[int]:
    bridge.create_tasks(project, ONTOLOGY, drafts)
    found = bridge.tasks_by_key(project, [d.key for d in drafts])
    return [found[d.key][0].id for d in drafts]


def read(bridge: LabelStudioBridge, project: int, since: str | None = None) -> dict[int, ToolAnnotation]:
    return {annotation.id: annotation for annotation in bridge.annotations(project, ONTOLOGY, since)}


def marked(control: str, choice: str) -> dict[str, Any]:
    return {"id": "m1", "from_name": control, "to_name": PICTURE, "type": "choices", "value": {"choices": [choice]}}


def test_a_project_is_made_once(bridge: LabelStudioBridge, project: int, rest: httpx.Client) -> None:
    assert bridge.ready()
    assert bridge.ensure_project(ONTOLOGY) == project
    assert bridge.ensure_project(Ontology(ONTOLOGY.name, 2, HEADS)) != project
    settings = rest.get(f"/api/projects/{project}/").json()
    assert settings["title"].endswith("driving čł v1")
    assert settings["enable_empty_annotation"]
    assert settings["show_skip_button"]
    assert settings["maximum_annotations"] == 1


def test_workers_at_once_end_on_one_project(label_studio: Server) -> None:
    prefix = f"race {secrets.token_hex(4)}"
    ids: list[int] = []

    def work() -> None:
        bridge = LabelStudioBridge(label_studio.url, label_studio.token, prefix)
        ids.append(bridge.ensure_project(ONTOLOGY))
        bridge.close()

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    bridge = LabelStudioBridge(label_studio.url, label_studio.token, prefix)
    assert len(ids) == 6
    assert min(ids) == bridge.ensure_project(ONTOLOGY)
    bridge.close()
    # Two projects deleted at once would leave the tool without its signal handlers: no new user would get a token.
    sign_up(label_studio.url, label_studio.token, f"{secrets.token_hex(4)}@example.com", secrets.token_urlsafe(16))


def test_the_config_follows_until_something_is_annotated(
    bridge: LabelStudioBridge, project: int, rest: httpx.Client, annotate: Annotate
) -> None:
    more = Ontology(ONTOLOGY.name, 1, (*HEADS, Head("signs", Kind.BOXES, ("stop",))))
    assert bridge.ensure_project(more) == project
    assert "signs" in rest.get(f"/api/projects/{project}/").json()["label_config"]
    assert bridge.ensure_project(ONTOLOGY) == project
    annotate(make(bridge, project, draft("a"))[0], [], was_cancelled=True)
    assert bridge.ensure_project(ONTOLOGY) == project
    with pytest.raises(LabelToolRefused, match="new version"):
        bridge.ensure_project(more)


def test_tasks_are_found_by_key_and_deleted(bridge: LabelStudioBridge, project: int) -> None:
    drafts = [draft(f"key-{number:04}") for number in range(70)]
    bridge.create_tasks(project, ONTOLOGY, drafts)
    keys = [d.key for d in drafts]
    found = bridge.tasks_by_key(project, [*keys, "key-0001", "key", "nothing"])
    assert sorted(found) == keys
    assert all(len(tasks) == 1 for tasks in found.values())
    in_order = [found[key][0].id for key in keys]
    assert in_order == sorted(in_order)
    gone = in_order[:3]
    bridge.delete_tasks([*gone, gone[0], 999_999_999])
    assert sorted(bridge.tasks_by_key(project, keys)) == keys[3:]


def test_a_timed_out_import_lands_late_and_its_double_is_found(
    label_studio: Server, bridge: LabelStudioBridge, project: int
) -> None:
    bridge.create_tasks(project, ONTOLOGY, [draft("b")])
    hasty = LabelStudioBridge(label_studio.url, label_studio.token, "hasty", timeout_s=0.005)
    with pytest.raises(LabelToolUnavailable, match="ReadTimeout"):
        hasty.create_tasks(project, ONTOLOGY, [draft("a")])
    hasty.close()
    bridge.create_tasks(project, ONTOLOGY, [draft("a")])
    deadline = time.monotonic() + 20
    while len(doubles := bridge.tasks_by_key(project, ["a"])["a"]) < 2:
        assert time.monotonic() < deadline, "the timed-out import did not land"
        time.sleep(0.1)
    assert doubles[0].id < doubles[1].id
    bridge.delete_tasks([doubles[1].id])
    assert bridge.tasks_by_key(project, ["a", "b"])["a"] == doubles[:1]


def test_predictions_are_shown_and_read_back_as_confirmed(
    bridge: LabelStudioBridge, project: int, rest: httpx.Client, annotate: Annotate
) -> None:
    meta = {"campaign": "fog <night>", "reason": "uncertain"}
    (task,) = make(bridge, project, draft("p", predictions=ANSWERS, model_version="v7", meta=meta))
    shown = rest.get(f"/api/tasks/{task}/", params={"resolve_uri": "false"}).json()
    assert shown["data"]["image"] == "http://127.0.0.1:9/p.png?sig=a%2Bb"
    assert shown["data"]["reason"] == "campaign: fog <night> · reason: uncertain"
    assert shown["data"]["model_version"] == "v7"
    (prediction,) = shown["predictions"]
    # The tool pre-annotates with the project's own model version alone.
    assert prediction["model_version"] == rest.get(f"/api/projects/{project}/").json()["model_version"]
    annotation = annotate(task, prediction["result"], parent_prediction=prediction["id"])
    said = read(bridge, project)[annotation]
    assert said.problem is None
    assert said.answers["weather"] == ANSWERS["weather"]
    assert said.answers["drivable"] == ANSWERS["drivable"]
    assert said.answers["lanes"].value["lines"][0]["id"] == "l1"
    assert [o["class"] for o in said.answers["objects"].value["objects"]] == list(CLASSES)
    assert said.answers["objects"].value["objects"][1]["box"] == pytest.approx([0.1, 0.2, 0.5, 0.75])
    assert said.prediction_shown
    assert (said.task_id, said.task_key, said.lead_time_s) == (task, "p", 12.5)
    assert "@" in said.annotator


@pytest.mark.parametrize("head", ["objects", "lanes", "drivable", "weather"])
def test_a_blind_annotation_of_each_kind_is_read(
    bridge: LabelStudioBridge, project: int, annotate: Annotate, head: str
) -> None:
    (task,) = make(bridge, project, draft("k", heads=[head, "depth"]))
    annotation = annotate(task, to_results(ONTOLOGY, [head], ANSWERS, WIDTH, HEIGHT))
    said = read(bridge, project)[annotation]
    assert (said.outcome, said.problem, said.prediction_shown) == (AnnotationOutcome.SUBMITTED, None, False)
    assert list(said.answers) == [head]
    assert said.answers[head].kind is ONTOLOGY.head(head).kind


def test_empty_skipped_unusable_and_not_answered_differ(
    bridge: LabelStudioBridge, project: int, annotate: Annotate
) -> None:
    tasks = make(bridge, project, *(draft(key) for key in ("empty", "skip", "unusable", "doubt", "odd")))
    empty = annotate(tasks[0], [])
    skipped = annotate(tasks[1], to_results(ONTOLOGY, ALL, ANSWERS, WIDTH, HEIGHT), was_cancelled=True)
    unusable = annotate(tasks[2], [marked(UNUSABLE, "unusable")])
    doubt = annotate(tasks[3], [marked(NOT_ANSWERED, "lanes"), marked("weather", "clear")])
    odd = annotate(tasks[4], [marked("bridges", "stone")])
    said = read(bridge, project)
    assert said[empty].outcome == AnnotationOutcome.SUBMITTED
    assert said[empty].answers["objects"] == Answer(Kind.BOXES, {"objects": []})
    assert sorted(said[empty].answers) == ["drivable", "lanes", "objects"]
    assert (said[skipped].outcome, said[skipped].answers) == (AnnotationOutcome.SKIPPED, {})
    assert (said[unusable].outcome, said[unusable].answers) == (AnnotationOutcome.UNUSABLE, {})
    assert sorted(said[doubt].answers) == ["drivable", "objects", "weather"]
    assert said[odd].answers == {}
    assert "bridges" in (said[odd].problem or "")


def test_edits_and_deletions_are_seen_since(
    bridge: LabelStudioBridge, project: int, rest: httpx.Client, annotate: Annotate
) -> None:
    first, second = make(bridge, project, draft("1"), draft("2"))
    edited, kept = annotate(first, []), annotate(second, [])
    before = read(bridge, project)
    assert sorted(before) == [edited, kept]
    assert read(bridge, project) == before  # reading again gives the same, payload and all
    results = to_results(ONTOLOGY, ["weather"], ANSWERS, WIDTH, HEIGHT)
    rest.patch(f"/api/annotations/{edited}/", json={"result": results, "lead_time": 20.0}).raise_for_status()
    since = before[kept].updated_at
    after = read(bridge, project, since)
    assert after[edited].answers["weather"] == ANSWERS["weather"]
    assert after[edited].updated_at > before[edited].updated_at
    newest = after[edited].updated_at
    assert sorted(read(bridge, project, newest)) == [edited]
    rest.delete(f"/api/annotations/{edited}/").raise_for_status()
    changed = {task.id: ids for task, ids in bridge.annotation_ids(project, newest)}
    assert changed == {first: []}
    assert sorted(read(bridge, project)) == [kept]


def test_annotations_are_read_over_several_pages(
    bridge: LabelStudioBridge, project: int, annotate: Annotate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.adapters.label_studio.client._TASKS_A_PAGE", 2)
    tasks = make(bridge, project, *(draft(str(number)) for number in range(5)))
    made = {annotate(task, []) for task in tasks}
    stream = bridge.annotations(project, ONTOLOGY)
    seen = {next(stream).id, next(stream).id}
    bridge.delete_tasks(tasks[:1])  # moves every later task up by one
    assert seen | {annotation.id for annotation in stream} == made


def test_one_wrong_draft_makes_no_task(bridge: LabelStudioBridge, project: int) -> None:
    with pytest.raises(LabelToolRefused):
        bridge.create_tasks(project, ONTOLOGY, [draft("good"), draft("bad", heads=["depth"])])
    assert bridge.tasks_by_key(project, ["good", "bad"]) == {}


def test_a_project_that_is_gone_is_refused(bridge: LabelStudioBridge) -> None:
    with pytest.raises(LabelToolRefused, match="404"):
        bridge.create_tasks(999_999_999, ONTOLOGY, [draft("a")])


def test_the_webhook_is_set_once(bridge: LabelStudioBridge, project: int, rest: httpx.Client) -> None:
    for _ in range(2):
        bridge.ensure_webhook(project, "http://127.0.0.1:9/hook", {"X-Longtail-Token": "t"})
    hooks = rest.get("/api/webhooks/", params={"project": project}).json()
    assert [(hook["url"], hook["send_payload"]) for hook in hooks] == [("http://127.0.0.1:9/hook", False)]
    assert bridge.task_url(project, 5).endswith(f"/projects/{project}/data?task=5")
