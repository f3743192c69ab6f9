"""POST /v1/labels:import: all or nothing, again and again, by revisions."""

from __future__ import annotations

import base64
import io
import json
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import func, select

from engine.domain.ids import frame_id
from engine.store.tables.labels import Label
from engine.store.tables.recordings import Frame, Subject

ONTOLOGY = {
    "name": "driving",
    "version": 1,
    "heads": [
        {"name": "objects", "kind": "boxes", "classes": ["car", "truck"]},
        {"name": "depth", "kind": "dense_scalar", "label_tool": "machine", "unit": "m"},
        {"name": "scene", "kind": "choice", "classes": ["city", "motorway"]},
    ],
}
BOX = {"objects": [{"id": "a", "class": "car", "box": [0.1, 0.1, 0.4, 0.5]}]}


def npy(array: np.ndarray) -> str:
    out = io.BytesIO()
    np.save(out, array)
    return base64.b64encode(out.getvalue()).decode()


class Importer:
    """A clip, its PTS, an ontology, and a token that may import."""

    def __init__(self, api: Any, clip: str, pts: list[int], client: httpx.Client) -> None:
        self.api, self.clip, self.pts, self.client = api, clip, pts, client

    def label(self, head: str = "objects", value: Any = None, pts: int | None = None, **more: Any) -> dict[str, Any]:
        return {
            "clip": self.clip,
            "stream": "front",
            "pts": self.pts[0] if pts is None else pts,
            "head": head,
            "value": BOX if value is None else value,
            **more,
        }

    def send(self, *labels: dict[str, Any], source: str = "simulator", **more: Any) -> httpx.Response:
        body = {"ontology": {"name": "driving", "version": 1}, "source": source, "labels": list(labels)}
        return self.client.post("/v1/labels:import", json=body, **more)

    def rows(self) -> list[Label]:
        with self.api.session() as session:
            return list(session.scalars(select(Label).order_by(Label.id)))


@pytest.fixture
def importer(api: Any, manifest: Callable[..., Any], video: bytes) -> Importer:
    writer = api.token("ontologies:write", "ontologies:read")
    assert writer.post("/v1/ontologies", json=ONTOLOGY).status_code == 201
    gateway = api.device()
    location = api.post_clip(gateway, manifest(), {"front": video}).headers["location"]
    clip = gateway.get(location).json()
    return Importer(api, clip["id"], clip["streams"][0]["pts"], api.token("labels:write", "labels:read"))


def test_labels_come_in_with_their_frames(importer: Importer) -> None:
    depth = np.full((6, 8), 12.5, np.float16)
    depth[0, 0] = np.nan
    answer = importer.send(
        importer.label(annotated_classes=["car"]),
        importer.label("depth", {"size": [6, 8]}, array_base64=npy(depth)),
        importer.label(pts=importer.pts[2], value={"objects": []}),
    )
    assert answer.status_code == 200, answer.text
    assert (answer.json()["created"], answer.json()["unchanged"]) == (3, 0)
    first = frame_id(uuid.UUID(importer.clip), "front", importer.pts[0])
    shown = importer.client.get("/v1/labels", params={"subject": str(first)}).json()["items"]
    assert [(label["head"], label["source"], label["revision"]) for label in shown] == [
        ("objects", "simulator", 1),
        ("depth", "simulator", 1),
    ]
    assert shown[0]["annotated_classes"] == ["car"]
    assert shown[0]["value"] == BOX
    stored = np.load(io.BytesIO(importer.api.blob_bytes(shown[1]["array_sha256"])))
    np.testing.assert_array_equal(stored, depth)
    with importer.api.session() as session:
        frames = session.scalars(select(Frame).order_by(Frame.pts)).all()
        assert [frame.pts for frame in frames] == [importer.pts[0], importer.pts[2]]
        assert frames[1].capture_ns - frames[0].capture_ns == 200_000_000
        assert set(session.scalars(select(Subject.split))) == {"pool"}


def test_the_same_import_again_changes_nothing(importer: Importer) -> None:
    first = importer.send(importer.label(), importer.label("scene", {"choice": "city"})).json()
    again = importer.send(importer.label(), importer.label("scene", {"choice": "city"})).json()
    assert again == {"created": 0, "unchanged": 2, "label_ids": first["label_ids"]}
    assert len(importer.rows()) == 2


def test_another_answer_supersedes(importer: Importer) -> None:
    importer.send(importer.label("scene", {"choice": "city"}))
    importer.send(importer.label("scene", {"choice": "motorway"}), source="sensor")
    late = importer.send(importer.label("scene", {"choice": "city"})).json()
    assert late["unchanged"] == 1, "an import that is sent again late does not undo what came after it"
    first, second = importer.rows()
    assert (first.revision, second.revision) == (1, 2)
    assert first.superseded_by_id == second.id
    assert second.superseded_by_id is None
    assert len(importer.client.get("/v1/labels").json()["items"]) == 1
    assert len(importer.client.get("/v1/labels", params={"all_revisions": True}).json()["items"]) == 2


def test_a_model_does_not_overrule_a_person(importer: Importer) -> None:
    importer.send(importer.label("scene", {"choice": "city"}))
    with importer.api.session() as session:
        session.scalars(select(Label)).one().source = "human"
        session.commit()
    kept = importer.send(importer.label("scene", {"choice": "motorway"}), source="auto").json()
    assert (kept["created"], kept["unchanged"]) == (0, 1)
    assert importer.send(importer.label("scene", {"choice": "motorway"}), source="import").json()["created"] == 1


BAD_LABELS: list[tuple[dict[str, Any], str]] = [
    ({"head": "lanes"}, "no head 'lanes'"),
    ({"value": {}}, "objects"),
    ({"value": {"objects": [{"class": "tram", "box": [0, 0, 1, 1]}]}}, "no class 'tram'"),
    ({"value": {"objects": [{"class": "car", "box": [0.5, 0, 0.4, 1]}]}}, "no area"),
    ({"value": {"objects": ["car"]}}, "label 1"),
    ({"value": {"objects": [{"class": "car", "box": [0, 0, 40, 30]}]}}, "outside the picture"),
    ({"pts": 7}, "no frame at PTS 7"),
    ({"annotated_classes": ["tram"]}, "no class 'tram'"),
    ({"head": "depth", "value": {"size": [6, 8]}}, "array"),
    ({"head": "depth", "value": {"size": [6, 8]}, "array_base64": base64.b64encode(b"zip").decode()}, "no .npy"),
    ({"head": "depth", "value": {"size": [6, 8]}, "array_base64": npy(np.zeros((6, 8)))}, "float16"),
    ({"head": "depth", "value": {"size": [6, 8]}, "array_base64": npy(np.zeros((8, 6), np.float16))}, "[6, 8]"),
    (
        {"head": "depth", "value": {"size": [6, 8]}, "array_base64": npy(np.full((6, 8), np.inf, np.float16))},
        "infinities",
    ),
]


def test_a_bad_label_stops_the_whole_import(importer: Importer) -> None:
    before = importer.api.blob_files()
    for changes, says in BAD_LABELS:
        answer = importer.send(importer.label("scene", {"choice": "city"}), importer.label(**changes))
        assert answer.status_code == 422, (changes, answer.text)
        assert answer.json()["type"] == "/problems/invalid-label"
        assert says in answer.json()["detail"]
    assert importer.rows() == []
    assert importer.api.blob_files() == before


def test_what_is_not_there_is_not_found(importer: Importer) -> None:
    label = importer.label()
    for changes, code in (
        ({"clip": str(uuid.uuid4())}, "no-such-clip"),
        ({"stream": "rear"}, "no-such-stream"),
    ):
        answer = importer.send(label | changes)
        assert (answer.status_code, answer.json()["type"]) == (404, f"/problems/{code}")
    body = {"ontology": {"name": "driving", "version": 2}, "source": "import", "labels": [label]}
    answer = importer.client.post("/v1/labels:import", json=body)
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/no-such-ontology")
    twice = importer.send(label, label)
    assert (twice.status_code, "twice" in twice.json()["detail"]) == (422, True)


def test_not_json_and_what_the_database_could_not_hold(importer: Importer) -> None:
    body = {"ontology": {"name": "driving", "version": 1}, "source": "import"}
    nan = json.dumps({**body, "labels": [importer.label(value={"objects": [], "note": float("nan")})]})
    headers = {"Content-Type": "application/json"}
    answer = importer.client.post("/v1/labels:import", content=nan, headers=headers)
    assert answer.status_code == 422
    nul = importer.send(importer.label(value={"objects": [], "note": "\x00"}))
    assert (nul.status_code, nul.json()["errors"][0]["pointer"]) == (422, "/body/labels/0/value")
    broken = importer.client.post("/v1/labels:import", content="{", headers=headers)
    assert (broken.status_code, broken.headers["content-type"]) == (422, "application/problem+json")
    assert importer.send(importer.label(array_base64="%%%")).status_code == 422


def test_devices_send_what_their_sensors_say_of_their_own_clips(importer: Importer) -> None:
    own, other = importer.api.device("sim-07"), importer.api.device("sim-08")
    body = {"ontology": {"name": "driving", "version": 1}, "source": "sensor", "labels": [importer.label()]}
    refused = other.post("/v1/labels:import", json=body)
    assert (refused.status_code, refused.json()["type"]) == (404, "/problems/no-such-clip")
    assert (
        own.post("/v1/labels:import", json=body | {"source": "import"}).json()["type"] == "/problems/source-not-allowed"
    )
    assert own.post("/v1/labels:import", json=body).json()["created"] == 1
    with importer.api.session() as session:
        assert session.scalar(select(Label.created_by)) == "device:sim-07"
        assert session.scalar(select(func.count()).select_from(Frame)) == 1


def test_idempotency_key_of_an_import(importer: Importer) -> None:
    key = {"Idempotency-Key": "import-1"}
    first = importer.send(importer.label(), headers=key)
    assert importer.send(importer.label(), headers=key).json() == first.json()
    other = importer.send(importer.label("scene", {"choice": "city"}), headers=key)
    assert (other.status_code, other.json()["type"]) == (422, "/problems/idempotency-key-reused")


def test_the_same_import_eight_times_at_once_is_one(importer: Importer) -> None:
    labels = [importer.label("scene", {"choice": "city"}, pts=pts) for pts in importer.pts]
    with ThreadPoolExecutor(8) as senders:
        answers = list(senders.map(lambda n: importer.send(*(labels if n % 2 else labels[::-1])), range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8
    assert sum(answer.json()["created"] for answer in answers) == len(labels)
    assert {label.revision for label in importer.rows()} == {1}
