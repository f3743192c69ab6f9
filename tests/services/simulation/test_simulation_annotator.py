"""Simulated labelers: no error says the truth, errors are settable, and their work lands in a real Label Studio."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from engine.adapters.label_studio.config import label_config
from engine.adapters.label_studio.results import from_results, to_results
from engine.domain.answers import Answer, check_answer, decode_runs
from services.simulation import drive as drives
from services.simulation.annotator import PERSONAS, Annotator, LabelerError, Persona, err, label_together
from services.simulation.drive import TruthBook, plan_drives
from services.simulation.sign_up import sign_up
from services.simulation.truth import driving_ontology

ONTOLOGY = driving_ontology()
PERSON_HEADS = [head.name for head in ONTOLOGY.person_heads]
DRIVES = plan_drives(31, 12, "boosted", clips=1)
Truths = list[dict[str, Answer]]


@pytest.fixture(scope="module")
def truths() -> Truths:
    return [drives.truth(drive, drive.clips[0], drive.clips[0].pts[3]) for drive in DRIVES]


def say(persona: Persona, truths: Truths, head: str, seed: int = 0) -> list[Answer]:
    rng = np.random.default_rng(seed)
    return [err(ONTOLOGY.head(head), truth[head], persona, rng) for truth in truths]


def without_attributes(value: Mapping[str, Any]) -> dict[str, Any]:
    """The boxes as a person can draw them."""
    objects = [{key: item[key] for key in ("id", "class", "box")} for item in value["objects"]]
    return {"objects": objects, **({"ignore": value["ignore"]} if value["ignore"] else {})}


def count(answers: list[Answer], key: str) -> int:
    return sum(len(answer.value[key]) for answer in answers)


def test_without_error_the_truth_is_said(truths: Truths) -> None:
    for head in ("lanes", "driveable"):
        assert say(Persona("exact"), truths, head) == [truth[head] for truth in truths]
    for head in ("objects", "signs"):
        said = [dict(answer.value) for answer in say(Persona("exact"), truths, head)]
        assert said == [without_attributes(truth[head].value) for truth in truths]


def test_every_persona_says_what_its_head_can_have(truths: Truths) -> None:
    for persona in PERSONAS.values():
        for head in ONTOLOGY.person_heads:
            for answer in say(persona, truths, head.name):
                check_answer(head, answer)


def test_box_jitter_moves_edges_by_its_share_of_the_side(truths: Truths) -> None:
    moved = []
    for seed in range(6):
        for answer, truth in zip(say(Persona("p", box_jitter=0.05), truths, "objects", seed), truths, strict=True):
            for said, true in zip(answer.value["objects"], truth["objects"].value["objects"], strict=True):
                side = true["box"][2] - true["box"][0]
                if 0.1 < true["box"][0] < true["box"][2] < 0.9:
                    moved.append((said["box"][0] - true["box"][0]) / side)
    assert len(moved) > 60
    assert np.std(moved) == pytest.approx(0.05, rel=0.3)


def test_misses_and_wrong_classes_come_at_their_rates(truths: Truths) -> None:
    whole = 12 * sum(len(truth["objects"].value["objects"]) for truth in truths)
    missed = sum(count(say(Persona("p", miss=0.3), truths, "objects", seed), "objects") for seed in range(12))
    assert missed / whole == pytest.approx(0.7, abs=0.08)
    wrong = 0
    for seed in range(12):
        for answer, truth in zip(say(Persona("p", wrong_class=0.25), truths, "objects", seed), truths, strict=True):
            pairs = zip(answer.value["objects"], truth["objects"].value["objects"], strict=True)
            wrong += sum(said["class"] != true["class"] for said, true in pairs)
    assert wrong / whole == pytest.approx(0.25, abs=0.08)


def test_more_noise_is_further_from_the_truth(truths: Truths) -> None:
    def differing(noise: float) -> float:
        pairs = zip(say(Persona("p", mask_noise=noise), truths, "driveable"), truths, strict=True)
        cells = [
            [
                np.frombuffer(decode_runs(a.value["runs"], tuple(a.value["size"])), np.uint8)
                for a in (said, true["driveable"])
            ]
            for said, true in pairs
        ]
        return float(np.mean([(said != true).mean() for said, true in cells]))

    def astray(jitter: float) -> float:
        off = []
        for said, truth in zip(say(Persona("p", lane_jitter=jitter), truths, "lanes"), truths, strict=True):
            for a, b in zip(said.value["lines"], truth["lanes"].value["lines"], strict=True):
                off += [abs(p[0] - q[0]) for p, q in zip(a["points"], b["points"], strict=True)]
        return float(np.mean(off))

    assert 0 == differing(0) < differing(0.01) < differing(0.05) < 0.3
    assert 0 == astray(0) < astray(0.003) < astray(0.03) < 0.1


def task_data(number: int) -> dict[str, Any]:
    drive = DRIVES[number]
    meta = {
        "drive_external_id": drive.external_id,
        "clip_external_id": drive.clips[0].external_id,
        "pts": str(drive.clips[0].pts[3]),
    }
    size = {"width": drive.camera.width, "height": drive.camera.height}
    return {"key": f"key-{number}", "image": "/picture.png", "heads": PERSON_HEADS, "meta": meta, **size}


def test_personas_disagree_but_each_repeats_itself(truths: Truths) -> None:
    nowhere = "http://127.0.0.1:9"  # what they say is made up without the tool
    with (
        Annotator(nowhere, "-", ONTOLOGY, TruthBook(DRIVES).truth_for, PERSONAS["quick"]) as quick,
        Annotator(nowhere, "-", ONTOLOGY, TruthBook(DRIVES).truth_for, PERSONAS["quick"]) as again,
        Annotator(nowhere, "-", ONTOLOGY, TruthBook(DRIVES).truth_for, PERSONAS["loose"]) as loose,
    ):
        first = quick.answers(task_data(0), truths[0])
        assert first == again.answers(task_data(0), truths[0])
        assert set(first) == set(PERSON_HEADS)
        assert first["objects"] != loose.answers(task_data(0), truths[0])["objects"]
        one = {**task_data(0), "heads": ["lanes", "depth"]}
        assert set(quick.answers(one, truths[0])) == {"lanes"}, "depth is for no person"


def test_codec_brings_an_exact_labelers_answers_back(truths: Truths) -> None:
    for drive, truth in zip(DRIVES, truths, strict=True):
        width, height = drive.camera.width, drive.camera.height
        results = json.loads(json.dumps(to_results(ONTOLOGY, PERSON_HEADS, truth, width, height)))
        back = from_results(ONTOLOGY, PERSON_HEADS, results, width, height)
        assert back["driveable"] == truth["driveable"]
        for said, true in zip(back["objects"].value["objects"], truth["objects"].value["objects"], strict=True):
            assert said["class"] == true["class"]
            assert said["box"] == pytest.approx(true["box"], abs=1e-6)


class LosesAnswers(httpx.HTTPTransport):
    """Carries every call, and loses the answers to the first POSTs."""

    def __init__(self, losses: int) -> None:
        super().__init__()
        self.losses = losses

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        if request.method == "POST" and self.losses:
            self.losses -= 1
            answer.read()
            answer.close()
            raise httpx.ReadTimeout("the answer is lost", request=request)
        return answer


def made_project(tool: httpx.Client, title: str, data: list[dict[str, Any]]) -> int:
    """A project of the label tool with a task for each of `data`."""
    made = tool.post("/api/projects/", json={"title": title, "label_config": label_config(ONTOLOGY)})
    made.raise_for_status()
    project = int(made.json()["id"])
    tasks = [{"data": {**one, "wanted": "Wanted", "reason": "a test"}} for one in data]
    tool.post(f"/api/projects/{project}/import", json=tasks).raise_for_status()
    return project


@pytest.fixture
def tool(label_studio: Any) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Token {label_studio.token}"}
    with httpx.Client(base_url=label_studio.url, headers=headers, timeout=60, trust_env=False) as client:
        yield client


@pytest.mark.label_studio
@pytest.mark.slow
def test_lost_answer_is_looked_up_before_annotating_again(label_studio: Any, tool: httpx.Client) -> None:
    project = made_project(tool, "lost answers", [task_data(0)])
    unlucky = httpx.Client(base_url=label_studio.url, transport=LosesAnswers(1), timeout=60)
    book, waits = TruthBook(DRIVES), list[float]()
    with Annotator(
        label_studio.url, label_studio.token, ONTOLOGY, book.truth_for, client=unlucky, sleep=waits.append
    ) as work:
        assert work.label(project).submitted == 1
    (task,) = tool.get("/api/tasks/", params={"project": project, "fields": "all"}).json()["tasks"]
    assert len(task["annotations"]) == 1
    assert len(waits) == 1


@pytest.mark.label_studio
@pytest.mark.slow
def test_stranger_is_turned_away(label_studio: Any, tool: httpx.Client) -> None:
    project = made_project(tool, "no strangers", [task_data(0)])
    with (
        Annotator(label_studio.url, "0" * 40, ONTOLOGY, TruthBook(DRIVES).truth_for) as work,
        pytest.raises(LabelerError, match="401"),
    ):
        work.label(project)


@pytest.mark.label_studio
@pytest.mark.slow
def test_work_lands_in_label_studio_and_reads_back_as_the_truth(
    label_studio: Any, tool: httpx.Client, truths: Truths
) -> None:
    stranger = {**task_data(0), "key": "stranger", "meta": {"drive_external_id": "not ours"}}
    project = made_project(tool, "simulated labelers", [*(task_data(number) for number in range(6)), stranger])
    book = TruthBook(DRIVES)
    skips = replace(PERSONAS["quick"], name="skipper", skip=1.0)
    with (
        Annotator(label_studio.url, label_studio.token, ONTOLOGY, book.truth_for, PERSONAS["exact"]) as exact,
        Annotator(label_studio.url, label_studio.token, ONTOLOGY, book.truth_for, skips) as skipper,
    ):
        first = exact.label(project, limit=3)
        assert (first.submitted, first.skipped) == (3, 0)
        done = label_together([skipper], project)["skipper"]
        assert (done.submitted, done.skipped, done.unknown) == (0, 3, 1)
        assert [task["data"]["key"] for task in exact.open_tasks(project)] == ["stranger"]

    tasks = tool.get("/api/tasks/", params={"project": project, "fields": "all"}).json()["tasks"]
    found = {task["data"]["key"]: task["annotations"] for task in tasks}
    assert found["stranger"] == []
    for number in range(6):
        (annotation,) = found[f"key-{number}"]
        assert annotation["lead_time"] > 0
        assert annotation["was_cancelled"] == (number >= 3)
        if number >= 3:
            continue
        data = task_data(number)
        back = from_results(ONTOLOGY, PERSON_HEADS, annotation["result"], data["width"], data["height"])
        assert back["driveable"] == truths[number]["driveable"]
        for said, true in zip(back["lanes"].value["lines"], truths[number]["lanes"].value["lines"], strict=True):
            assert np.allclose(said["points"], true["points"], atol=1e-6)


@pytest.mark.label_studio
@pytest.mark.slow
def test_each_labeler_signs_up_once_and_has_a_name_of_their_own(label_studio: Any) -> None:
    first, other, again = (
        sign_up(label_studio.url, label_studio.token, f"{name}@example.com", "a long enough passphrase")
        for name in ("careful", "loose", "careful")
    )
    assert first == again
    assert len({first, other, label_studio.token}) == 3
    for token, name in ((first, "careful"), (other, "loose")):
        with httpx.Client(base_url=label_studio.url, timeout=60, trust_env=False) as tool:
            who = tool.get("/api/current-user/whoami", headers={"Authorization": f"Token {token}"}).json()
        assert who["email"] == f"{name}@example.com"
    with pytest.raises(LabelerError, match="neither"):
        sign_up(label_studio.url, label_studio.token, "careful@example.com", "another passphrase")
