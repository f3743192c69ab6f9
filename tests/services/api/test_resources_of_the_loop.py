"""Campaigns and the queue, models and the gate, over the API."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
from safetensors.numpy import save
from sqlalchemy import select

from engine.stages.promote import promote
from engine.store.tables.labels import Campaign, GoldenSet, QueueItem, Selection
from engine.store.tables.metadata import new_id
from engine.store.tables.models import GateReport, ModelLine
from engine.store.tables.recordings import Blob, Subject
from engine.store.unit_of_work import Database
from services.wiring import Undispatched


def refused(response: httpx.Response, status: int, code: str) -> None:
    assert response.status_code == status, response.text
    assert response.json()["type"] == f"/problems/{code}"


def register(admin: httpx.Client, **changes: Any) -> httpx.Response:
    parts = {
        "line": (None, "car"),
        "config": (None, json.dumps({"heads": ["objects", "depth"], "backbone": "tiny"})),
        "weights": ("w.safetensors", save({"w": np.zeros(3, np.float32)})),
        **changes,
    }
    return admin.post("/v1/models", files={name: part for name, part in parts.items() if part is not None})


def golden_set(api: Any, line: dict[str, Any]) -> uuid.UUID:
    with api.session() as session:
        blob = Blob(id=new_id(), project_id=api.project_id, sha256="0" * 64, size_bytes=1, media_type="x")
        session.add(blob)
        session.flush()
        golden = GoldenSet(
            id=new_id(),
            project_id=api.project_id,
            name="town",
            version=1,
            line_id=uuid.UUID(line["id"]),
            ontology_id=uuid.UUID(line["ontology_id"]),
            content_sha256="1" * 64,
            header={},
            manifest_blob_id=blob.id,
            blind=True,
        )
        session.add(golden)
        session.commit()
        return golden.id


def test_campaigns_and_the_queue(
    api: Any, admin: httpx.Client, line: dict[str, Any], manifest: Callable[..., Any], video: bytes
) -> None:
    asked = {
        "name": "night trucks",
        "line": "car",
        "heads": ["objects"],
        "budget": 10,
        "batch_size": 5,
        "triggers": [{"name": "tag", "parameters": {"key": "weather", "value": "fog"}}],
    }
    key = {"Idempotency-Key": "campaign-1"}
    made = admin.post("/v1/campaigns", json=asked, headers=key)
    assert made.status_code == 201, made.text
    again = admin.post("/v1/campaigns", json=asked, headers=key)
    assert (again.status_code, again.json()) == (201, made.json())
    assert again.headers["location"] == made.headers["location"]
    refused(admin.post("/v1/campaigns", json=asked | {"budget": 11}, headers=key), 422, "idempotency-key-reused")
    refused(admin.post("/v1/campaigns", json=asked), 409, "name-taken")
    refused(admin.post("/v1/campaigns", json=asked | {"name": "b", "heads": ["depth"]}), 422, "head-not-for-people")
    refused(admin.post("/v1/campaigns", json=asked | {"name": "b", "heads": ["lanes"]}), 422, "invalid-ontology")
    refused(
        admin.post("/v1/campaigns", json=asked | {"name": "b", "triggers": [{"name": "moon"}]}), 422, "invalid-trigger"
    )
    refused(admin.post("/v1/campaigns", json=asked | {"name": "b", "line": "bus"}), 404, "no-such-line")
    campaign = made.json()["id"]
    started = admin.post(f"/v1/campaigns/{campaign}:select")
    assert started.status_code == 202
    job = admin.get(started.headers["location"]).json()
    assert (job["kind"], job["subject_id"], job["state"]) == ("select", campaign, "due")
    assert admin.patch(f"/v1/campaigns/{campaign}", json={"state": "paused"}).json()["state"] == "paused"
    refused(admin.post(f"/v1/campaigns/{campaign}:select"), 409, "campaign-not-active")

    pts = clip_pts(api, manifest, video, admin)
    body = {"ontology": {"name": "driving", "version": 1}, "source": "import", "labels": pts["labels"]}
    assert admin.post("/v1/labels:import", json=body).status_code == 200
    items = queue_items(api, uuid.UUID(campaign), uuid.UUID(line["ontology_id"]))
    shown = admin.get("/v1/queue").json()["items"]
    assert [item["id"] for item in shown] == items, "by priority"
    assert shown[0]["campaign"] == "night trucks"
    assert shown[0]["reason"] == {"why": "uncertain"}
    pages, after = [], None
    for _ in range(3):
        page = admin.get("/v1/queue", params={"limit": 1} | ({"after": after} if after else {})).json()
        pages += [item["id"] for item in page["items"]]
        after = page["next"]
    assert (pages, after) == (items, None)
    assert len(admin.get("/v1/queue", params={"arm": "control"}).json()["items"]) == 1
    assert admin.get("/v1/queue", params={"head": "depth"}).json()["items"] == []
    admin.post(f"/v1/queue/{items[2]}:prioritise", json={"priority": 99})
    assert admin.get("/v1/queue").json()["items"][0]["id"] == items[2]
    assert admin.post(f"/v1/queue/{items[0]}:drop", json={"reason": "blurred"}).json()["state"] == "dropped"
    refused(admin.post(f"/v1/queue/{items[0]}:drop", json={}), 409, "not-droppable")
    after_drop = admin.get(f"/v1/campaigns/{campaign}").json()
    assert (after_drop["spent"], after_drop["items"]) == (2, {"queued": 2, "dropped": 1})
    refused(admin.patch(f"/v1/campaigns/{campaign}", json={"budget": 1}), 409, "budget-spent")


def clip_pts(api: Any, manifest: Callable[..., Any], video: bytes, admin: httpx.Client) -> dict[str, Any]:
    clip = admin.get(api.post_clip(api.device(), manifest(), {"front": video}).headers["location"]).json()
    return {
        "labels": [
            {"clip": clip["id"], "stream": "front", "pts": pts, "head": "objects", "value": {"objects": []}}
            for pts in clip["streams"][0]["pts"][:3]
        ]
    }


def queue_items(api: Any, campaign_id: uuid.UUID, ontology_id: uuid.UUID) -> list[str]:
    with api.session() as session:
        shared = {"project_id": api.project_id, "campaign_id": campaign_id}
        selection = Selection(id=new_id(), pool_size=3, candidates=3, seed=1, **shared)
        session.add(selection)
        session.flush()
        items = [
            QueueItem(
                id=new_id(),
                selection_id=selection.id,
                subject_id=subject,
                ontology_id=ontology_id,
                trigger_sha256="2" * 64,
                arm="control" if number == 1 else "chosen",
                inclusion_probability=0.5 if number == 1 else None,
                seed=1,
                reason={"why": "uncertain"},
                heads=["objects"],
                priority=-number,
                **shared,
            )
            for number, subject in enumerate(session.scalars(select(Subject.id).order_by(Subject.id)))
        ]
        session.add_all(items)
        session.get_one(Campaign, campaign_id).spent = 3
        session.commit()
        return [str(item.id) for item in items]


def test_models_are_registered_judged_and_promoted(api: Any, admin: httpx.Client, line: dict[str, Any]) -> None:
    made = register(admin)
    assert made.status_code == 201, made.text
    model = made.json()
    assert (model["number"], model["origin"], model["heads"]) == (1, "registered", ["objects", "depth"])
    assert model["artifacts"][0]["config"]["backbone"] == "tiny"
    assert api.blob_bytes(model["weights_sha256"]) == save({"w": np.zeros(3, np.float32)})
    before = len(api.blob_files())
    refused(register(admin, weights=("w", b"PK pickle")), 422, "weights-rejected")
    refused(register(admin, weights=None), 422, "part-missing")
    refused(register(admin, config=(None, "{")), 422, "invalid-config")
    refused(register(admin, config=(None, json.dumps({"heads": ["lanes"]}))), 422, "invalid-config")
    refused(register(admin, line=(None, "bus")), 404, "no-such-line")
    assert len(api.blob_files()) == before

    path = f"/v1/models/{model['id']}"
    refused(admin.post(f"{path}:judge", json={"target_heads": ["objects"]}), 422, "no-golden-set")
    golden = golden_set(api, line)
    started = admin.post(
        f"{path}:judge",
        json={"target_heads": ["objects"], "waivers": [{"name": "within_one_drive", "why": "one town only"}]},
    )
    job = admin.get(started.headers["location"]).json()
    assert (job["kind"], job["subject_id"]) == ("judge", model["id"])
    assert job["payload"] == {
        "golden_set_id": str(golden),
        "target_heads": ["objects"],
        "waivers": [{"name": "within_one_drive", "why": "one town only", "head": None, "by": "token:tester-admin"}],
    }
    refused(admin.post(f"{path}:judge", json={"target_heads": ["depth"]}), 409, "targets-declared")
    refused(admin.post(f"{path}:promote", json={}), 409, "not-judged")
    report = gate_report(api, line, model, golden, "refused")
    refused(admin.post(f"{path}:promote", json={}), 409, "refused-by-gate")
    waived = admin.post(f"{path}:promote", json={"waivers": [{"name": "within_one_drive", "why": "known"}]})
    assert admin.get(waived.headers["location"]).json()["kind"] == "judge"
    report = gate_report(api, line, model, golden, "passed")
    started = admin.post(f"{path}:promote", json={})
    job = admin.get(started.headers["location"]).json()
    assert (job["kind"], job["subject_id"]) == ("promote", str(report))
    reports = admin.get("/v1/gate-reports", params={"newest_first": True}).json()["items"]
    assert [found["verdict"] for found in reports] == ["passed", "refused"]
    assert admin.get(f"/v1/gate-reports/{report}").json()["report"] == {"heads": {}}


def test_a_rollback_sent_twice_under_one_key_is_one(api: Any, admin: httpx.Client, line: dict[str, Any]) -> None:
    weights = [save({"w": np.full(3, number, np.float32)}) for number in range(3)]
    models = [register(admin, weights=("w", content)).json() for content in weights]
    database = Database(api.engine, Undispatched())
    golden = golden_set(api, line)
    for model in models:
        promote(database, gate_report(api, line, model, golden, "passed"), "tester")
    address = f"/v1/lines/{line['id']}:rollback"
    key = {"Idempotency-Key": "back-1"}
    told = [admin.post(address, json={"reason": "worse"}, headers=key) for _ in range(3)]
    assert [answer.status_code for answer in told] == [200] * 3
    assert told[0].json() == told[1].json() == told[2].json()
    assert (told[0].json()["from_number"], told[0].json()["to_number"]) == (3, 2)
    assert admin.get(f"/v1/lines/{line['id']}").json()["champion_id"] == models[1]["id"]
    refused(admin.post(address, json={"reason": "other"}, headers=key), 422, "idempotency-key-reused")
    assert admin.post(address, json={"reason": "still worse"}).json()["to_number"] == 1
    assert admin.get(f"/v1/lines/{line['id']}").json()["champion_id"] == models[0]["id"]


def gate_report(api: Any, line: dict[str, Any], model: dict[str, Any], golden: uuid.UUID, verdict: str) -> uuid.UUID:
    with api.session() as session:
        report = GateReport(
            id=new_id(),
            project_id=api.project_id,
            line_id=uuid.UUID(line["id"]),
            challenger_id=uuid.UUID(model["id"]),
            challenger_weights_sha256=model["weights_sha256"],
            champion_id=session.get_one(ModelLine, uuid.UUID(line["id"])).champion_id,
            golden_set_id=golden,
            golden_look=1,
            target_heads=["objects"],
            verdict=verdict,
            reasons=[] if verdict == "passed" else ["objects: not better"],
            report={"heads": {}},
        )
        session.add(report)
        session.commit()
        return report.id
