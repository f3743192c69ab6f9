"""Simulated labelers, who work through Label Studio's REST API alone, as people do through its pages.

What they see is the truth; what they say is the truth with their persona's errors. The same persona says the same of
the same task every time.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
import numpy as np

from engine.domain.answers import Answer, decode_runs
from engine.domain.ontology import Head, Kind, Ontology
from services.simulation.truth import mask_answer

TASKS_A_PAGE = 100
TruthFor = Callable[[Mapping[str, Any]], Mapping[str, Answer] | None]


class LabelerError(RuntimeError):
    """Label Studio would not take what the labeler did; the message holds its answer."""


@dataclass(frozen=True)
class Persona:
    """How somebody errs. With all at 0, what they say is the truth.

    box_jitter: sd of each edge as a share of the box's side; box_loose: margin all around, as a share of the side;
    miss and wrong_class: chances for each object or line; mask_noise: sd of the mask's border as a share of the
    picture's height; lane_jitter: sd of a line's points as a share of the picture's width; skip: chance to skip a task.
    """

    name: str
    box_jitter: float = 0.0
    box_loose: float = 0.0
    miss: float = 0.0
    wrong_class: float = 0.0
    mask_noise: float = 0.0
    lane_jitter: float = 0.0
    skip: float = 0.0
    pace: float = 1.0


PERSONAS: Mapping[str, Persona] = {
    persona.name: persona
    for persona in (
        Persona("exact"),
        Persona("careful", box_jitter=0.02, miss=0.005, mask_noise=0.004, lane_jitter=0.002, skip=0.01, pace=1.3),
        Persona(
            "quick", 0.05, 0.03, miss=0.03, wrong_class=0.01, mask_noise=0.010, lane_jitter=0.005, skip=0.03, pace=0.7
        ),
        Persona("loose", 0.04, 0.12, miss=0.02, wrong_class=0.01, mask_noise=0.015, lane_jitter=0.004, skip=0.02),
        Persona(
            "careless",
            0.20,
            0.10,
            miss=0.30,
            wrong_class=0.20,
            mask_noise=0.050,
            lane_jitter=0.030,
            skip=0.05,
            pace=0.3,
        ),
    )
}


@dataclass
class Labelled:
    """What came of a labeler's work: tasks submitted, skipped, and left alone because their truth is not known."""

    submitted: int = 0
    skipped: int = 0
    unknown: int = 0
    lead_time_s: float = 0.0
    task_ids: list[int] = field(default_factory=list)


class Annotator:
    """One labeler with a token of their own. `truth_for` takes a task's data and gives the truth by head."""

    def __init__(
        self,
        url: str,
        token: str,
        ontology: Ontology,
        truth_for: TruthFor,
        persona: Persona = PERSONAS["exact"],
        *,
        skip_unknown: bool = False,
        client: httpx.Client | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`skip_unknown`: a task whose truth isn't known is skipped, as by somebody who can't tell; else left."""
        self.persona = persona
        self._skip_unknown = skip_unknown
        self._ontology, self._truth_for, self._sleep = ontology, truth_for, sleep
        self._client = client or httpx.Client(base_url=url.rstrip("/"), timeout=60, trust_env=False)
        self._headers = {"Authorization": f"Token {token}"}
        self._user: int | None = None

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def label(self, project: int, *, limit: int | None = None) -> Labelled:
        """Work through the project's open tasks, or the first `limit` of them. Raises LabelerError."""
        done = Labelled()
        for task in self.open_tasks(project):
            if limit is not None and done.submitted + done.skipped >= limit:
                break
            self.label_task(task, done)
        return done

    def open_tasks(self, project: int) -> list[Mapping[str, Any]]:
        """The project's tasks that nobody has submitted or skipped, by id."""
        return [
            task for task in self._tasks(project) if not task["total_annotations"] and not task["cancelled_annotations"]
        ]

    def label_task(self, task: Mapping[str, Any], done: Labelled) -> None:
        """Do one task, and count it in `done`."""
        data = task["data"]
        truth = self._truth_for(data)
        if truth is None:
            done.unknown += 1
            if not self._skip_unknown:
                return
        rng = _lot(self.persona.name, str(data["key"]))
        if truth is None or rng.random() < self.persona.skip:
            body: dict[str, Any] = {"result": [], "was_cancelled": True, "lead_time": round(2 + 4 * rng.random(), 2)}
            done.skipped += 1
        else:
            said = self.answers(data, truth)
            body = {
                "result": self._results(data, said),
                "was_cancelled": False,
                "lead_time": _lead_time(said, self.persona, rng),
            }
            done.submitted += 1
        self._annotate(int(task["id"]), body)
        done.lead_time_s += body["lead_time"]
        done.task_ids.append(int(task["id"]))

    def answers(self, data: Mapping[str, Any], truth: Mapping[str, Answer]) -> dict[str, Answer]:
        """What this labeler says for the heads that the task wants and people label."""
        wanted = data.get("heads") or [head.name for head in self._ontology.person_heads]
        return {
            head.name: err(head, truth[head.name], self.persona, _lot(self.persona.name, str(data["key"]), head.name))
            for head in self._ontology.person_heads
            if head.name in wanted and head.name in truth
        }

    def _results(self, data: Mapping[str, Any], answers: Mapping[str, Answer]) -> list[dict[str, Any]]:
        from engine.adapters.label_studio.results import to_results

        return to_results(self._ontology, list(answers), answers, int(data["width"]), int(data["height"]))

    def _tasks(self, project: int) -> Iterator[Mapping[str, Any]]:
        page = 1
        while True:
            query = {"project": project, "page": page, "page_size": TASKS_A_PAGE, "fields": "task_only"}
            body = self._get("/api/tasks/", query)
            yield from body["tasks"]
            if page * TASKS_A_PAGE >= body["total"]:
                return
            page += 1

    def _annotate(self, task: int, body: Mapping[str, Any]) -> None:
        """Post an annotation. A lost answer may hide a landed one, so look before sending it again."""
        path = f"/api/tasks/{task}/annotations/"
        for attempt in range(4):
            if attempt:
                self._sleep(2.0**attempt)
                if any(given["completed_by"] == self._whoami() for given in self._get(path, {})):
                    return
            try:
                answer = self._client.post(path, json=body, headers=self._headers)
            except httpx.TransportError:
                continue
            if answer.is_success:
                return
            if answer.status_code < 500 and answer.status_code != 429:
                raise LabelerError(f"annotating task {task} was refused, {answer.status_code}: {answer.text[:400]}")
        raise LabelerError(f"annotating task {task} failed four times")

    def _whoami(self) -> int:
        if self._user is None:
            self._user = int(self._get("/api/current-user/whoami", {})["id"])
        return self._user

    def _get(self, path: str, query: Mapping[str, Any]) -> Any:
        said = ""
        for attempt in range(4):
            if attempt:
                self._sleep(2.0**attempt)
            try:
                answer = self._client.get(path, params=dict(query), headers=self._headers)
            except httpx.TransportError as failed:
                said = str(failed)
                continue
            if answer.is_success:
                return answer.json()
            said = f"{answer.status_code}: {answer.text[:400]}"
            if answer.status_code < 500 and answer.status_code != 429:
                break
        raise LabelerError(f"GET {path} failed, {said}")


def label_together(annotators: Sequence[Annotator], project: int, *, limit: int | None = None) -> dict[str, Labelled]:
    """Share a project's open tasks among labelers, each task to one by lot of its key; what each did, by persona."""
    done = {annotator.persona.name: Labelled() for annotator in annotators}
    for task in annotators[0].open_tasks(project)[:limit]:
        annotator = annotators[int(_lot("whose", str(task["data"]["key"])).integers(len(annotators)))]
        annotator.label_task(task, done[annotator.persona.name])
    return done


def work_through(annotators: Sequence[Annotator], project: int) -> int:
    """Let them share the project's open tasks; returns how many they submitted or skipped."""
    done = label_together(annotators, project)
    return sum(each.submitted + each.skipped for each in done.values())


def err(head: Head, truth: Answer, persona: Persona, rng: np.random.Generator) -> Answer:
    """What a persona says where `truth` is the truth. Attributes that nobody can draw (velocity) are left out."""
    if head.kind is Kind.BOXES:
        return _err_boxes(head, truth, persona, rng)
    if head.kind is Kind.POLYLINES:
        return _err_polylines(head, truth, persona, rng)
    if head.kind is Kind.MASK:
        return _err_mask(truth, persona, rng)
    return truth


def _err_boxes(head: Head, truth: Answer, persona: Persona, rng: np.random.Generator) -> Answer:
    objects = []
    for item in truth.value["objects"]:
        lots = rng.random(2)
        box = _moved(item["box"], persona, rng)
        if lots[0] < persona.miss:
            continue
        objects.append(
            {"id": item["id"], "class": _named(head, item["class"], lots[1] < persona.wrong_class, rng), "box": box}
        )
    value: dict[str, Any] = {"objects": objects}
    if truth.value.get("ignore"):
        value["ignore"] = [_moved(box, persona, rng) for box in truth.value["ignore"]]
    return Answer(truth.kind, value)


def _moved(box: Sequence[float], persona: Persona, rng: np.random.Generator) -> list[float]:
    x0, y0, x1, y1 = box
    by = rng.normal(0, persona.box_jitter, 4)
    width, height, loose = x1 - x0, y1 - y0, persona.box_loose
    moved = [
        x0 + (by[0] - loose) * width,
        y0 + (by[1] - loose) * height,
        x1 + (by[2] + loose) * width,
        y1 + (by[3] + loose) * height,
    ]
    moved = [float(min(1.0, max(0.0, value))) for value in moved]
    return moved if moved[2] - moved[0] > 1e-3 and moved[3] - moved[1] > 1e-3 else list(box)


def _err_polylines(head: Head, truth: Answer, persona: Persona, rng: np.random.Generator) -> Answer:
    lines = []
    for item in truth.value["lines"]:
        lots = rng.random(2)
        # A hand is off by a little all along and by a little at each point.
        by = persona.lane_jitter * (rng.normal() + 0.5 * rng.normal(size=len(item["points"])))
        if lots[0] < persona.miss:
            continue
        points = [[float(min(1.0, max(0.0, x + off))), y] for (x, y), off in zip(item["points"], by, strict=True)]
        lines.append(
            {
                "id": item["id"],
                "class": _named(head, item["class"], lots[1] < persona.wrong_class, rng),
                "points": points,
            }
        )
    return Answer(truth.kind, {"lines": lines})


def _err_mask(truth: Answer, persona: Persona, rng: np.random.Generator) -> Answer:
    height, width = truth.value["size"]
    if persona.mask_noise == 0:
        return truth
    cells = np.frombuffer(decode_runs(truth.value["runs"], (height, width)), dtype=np.uint8).reshape(height, width)
    # A smooth wave moves the border up and down, another one sideways: a brush that strays.
    down = np.rint(_stray(width, persona.mask_noise * height, rng)).astype(int)
    right = np.rint(_stray(height, persona.mask_noise * height, rng)).astype(int)
    rows = np.clip(np.arange(height)[:, None] - down[None, :], 0, height - 1)
    columns = np.clip(np.arange(width)[None, :] - right[:, None], 0, width - 1)
    return mask_answer(cells[rows, columns])


def _stray(length: int, sd: float, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A smooth curve of `length` samples with about this standard deviation."""
    knots = rng.normal(0, sd, 10)
    return np.interp(np.linspace(0, 9, length), np.arange(10), knots)


def _named(head: Head, name: str, wrong: bool, rng: np.random.Generator) -> str:
    others = [other for other in head.classes if other != name]
    return str(rng.choice(others)) if wrong and others else name


def _lead_time(answers: Mapping[str, Answer], persona: Persona, rng: np.random.Generator) -> float:
    """Seconds: a look, then some for each thing drawn."""
    drawn = sum(
        len(a.value.get("objects", ())) + len(a.value.get("lines", ())) + ("runs" in a.value) for a in answers.values()
    )
    return round(float(persona.pace * (3 + 4.5 * drawn) * rng.lognormal(0, 0.3)), 2)


def _lot(*names: str) -> np.random.Generator:
    """A random generator that hangs on the names alone."""
    return np.random.default_rng(int.from_bytes(hashlib.sha256("\0".join(names).encode()).digest()[:8], "big"))
