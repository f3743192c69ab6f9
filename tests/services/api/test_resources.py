"""The other resources: pages of lists, access, campaigns and the queue, models and the gate, jobs, health and media."""

from __future__ import annotations

import hashlib
import io
import json
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save
from sqlalchemy import select

from engine.store.tables.access import AuditEntry, DeviceKey, Project
from engine.store.tables.labels import Campaign, GoldenSet, QueueItem, Selection
from engine.store.tables.metadata import new_id
from engine.store.tables.models import GateReport
from engine.store.tables.recordings import Blob, Subject
from engine.store.tables.work import Job
from services.media_links import MediaLinks

ONTOLOGY = {
    "name": "driving",
    "version": 1,
    "heads": [
        {"name": "objects", "kind": "boxes", "classes": ["car"]},
        {"name": "depth", "kind": "dense_scalar", "label_tool": "machine", "unit": "m"},
    ],
}


def refused(response: httpx.Response, status: int, code: str) -> None:
    assert response.status_code == status, response.text
    assert response.json()["type"] == f"/problems/{code}"


@pytest.fixture
def admin(api: Any) -> httpx.Client:
    return api.token("admin")


@pytest.fixture
def line(admin: httpx.Client) -> dict[str, Any]:
    assert admin.post("/v1/ontologies", json=ONTOLOGY).status_code == 201
    made = admin.post("/v1/lines", json={"name": "car", "ontology": {"name": "driving", "version": 1}})
    assert made.status_code == 201, made.text
    return made.json()


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


def test_pages_hold_every_clip_once(api: Any, manifest: Callable[..., Any], make_video: Callable[..., bytes]) -> None:
    gateway, reader = api.device(), api.token("clips:read")
    sent = []
    for number in range(5):
        clip = manifest(f"c-{number}", drive={"external_id": f"d-{number % 2}"})
        sent.append(api.post_clip(gateway, clip, {"front": make_video(number)}).json()["id"])
    seen, after = [], None
    while True:
        page = reader.get("/v1/clips", params={"limit": 2} | ({"after": after} if after else {})).json()
        seen += [item["id"] for item in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert seen == sent
    only = reader.get("/v1/clips", params={"drive": "d-1"}).json()
    assert [item["id"] for item in only["items"]] == [sent[1], sent[3]]
    refused(reader.get("/v1/clips", params={"limit": 0}), 422, "invalid-request")
    refused(reader.get("/v1/clips", params={"after": "x"}), 422, "invalid-request")
    refused(reader.get(f"/v1/clips/{uuid.uuid4()}"), 404, "no-such-clip")


def test_etag_spares_the_body(api: Any, manifest: Callable[..., Any], video: bytes, admin: httpx.Client) -> None:
    location = api.post_clip(api.device(), manifest(), {"front": video}).headers["location"]
    first = admin.get(location)
    again = admin.get(location, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_health_is_open_and_nothing_else_is(api: Any) -> None:
    nobody = api.client(None)
    assert nobody.get("/healthz").json() == {"status": "ok"}
    assert nobody.get("/readyz").json() == {"status": "ok"}
    document = api.token("jobs:read").get("/openapi.json").json()
    open_paths = {"/healthz", "/readyz", "/media/{signature}/{expires}/{sha256}"}
    asked = 0
    for path, methods in document["paths"].items():
        for method in methods:
            if path in open_paths:
                continue
            concrete = path.replace("{", "").replace("}", "")
            for name in (
                "clip_id",
                "item_id",
                "campaign_id",
                "label_id",
                "dataset_id",
                "run_id",
                "report_id",
                "model_id",
            ):
                concrete = concrete.replace(name, str(uuid.uuid4()))
            for name in ("line_id", "ontology_id", "job_id", "device_id", "token_id"):
                concrete = concrete.replace(name, str(uuid.uuid4()))
            refused(nobody.request(method.upper(), concrete), 401, "no-token")
            asked += 1
    assert asked > 40
    assert "ManifestIn" in document["components"]["schemas"]


def test_a_blob_store_that_is_gone_is_not_ready(api: Any) -> None:
    folder = api.blob_root / "temporary"
    folder.rename(api.blob_root / "elsewhere")
    answer = api.client(None).get("/readyz")
    refused(answer, 503, "blobs-unavailable")


def test_devices_are_made_and_revoked(
    api: Any, admin: httpx.Client, manifest: Callable[..., Any], video: bytes
) -> None:
    made = admin.post("/v1/devices", json={"name": "van", "vehicles": ["sim-07"]})
    assert made.status_code == 201
    secret = made.json()["secret"]
    with api.session() as session:
        stored = session.scalars(select(DeviceKey)).one()
        assert stored.secret_sha256 == hashlib.sha256(secret.encode()).hexdigest()
    van = api.client(secret)
    assert api.post_clip(van, manifest(), {"front": video}).status_code == 202
    (shown,) = admin.get("/v1/devices").json()["items"]
    assert shown["vehicles"] == ["sim-07"]
    assert shown["last_seen_at"] is not None
    assert secret not in json.dumps(shown)
    assert admin.delete(f"/v1/devices/{shown['id']}").status_code == 204
    assert admin.delete(f"/v1/devices/{shown['id']}").status_code == 204
    refused(api.post_clip(van, manifest(), {"front": video}), 401, "unknown-token")
    refused(admin.post("/v1/devices", json={"name": "van", "any_vehicle": True}), 409, "name-taken")
    refused(admin.post("/v1/devices", json={"name": "bike"}), 422, "vehicles-unclear")
    refused(admin.delete(f"/v1/devices/{uuid.uuid4()}"), 404, "no-such-device")
    refused(van.get("/v1/devices"), 401, "unknown-token")
    with api.session() as session:
        acts = session.scalars(select(AuditEntry.act).where(AuditEntry.object_kind == "device").order_by(AuditEntry.id))
        assert list(acts) == ["make", "revoke"]


def test_tokens_have_scopes_and_an_end(api: Any, admin: httpx.Client) -> None:
    made = admin.post("/v1/tokens", json={"name": "reader", "scopes": ["jobs:read"]}).json()
    reader = api.client(made["secret"])
    assert reader.get("/v1/jobs").status_code == 200
    refused(reader.get("/v1/queue"), 403, "missing-scope")
    refused(reader.get("/v1/tokens"), 403, "missing-scope")
    refused(admin.post("/v1/tokens", json={"name": "x", "scopes": ["everything"]}), 422, "unknown-scope")
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    over = admin.post("/v1/tokens", json={"name": "over", "scopes": ["jobs:read"], "expires_at": past}).json()
    refused(api.client(over["secret"]).get("/v1/jobs"), 401, "unknown-token")
    assert admin.delete(f"/v1/tokens/{made['id']}").status_code == 204
    refused(reader.get("/v1/jobs"), 401, "unknown-token")


def test_ontologies_and_lines(admin: httpx.Client, line: dict[str, Any]) -> None:
    again = admin.post("/v1/ontologies", json=ONTOLOGY)
    assert again.json()["id"] == line["ontology_id"]
    changed = {**ONTOLOGY, "heads": ONTOLOGY["heads"][:1]}
    refused(admin.post("/v1/ontologies", json=changed), 409, "ontology-exists")
    bad = {"name": "other", "version": 1, "heads": [{"name": "objects", "kind": "boxes"}]}
    refused(admin.post("/v1/ontologies", json=bad), 422, "invalid-ontology")
    for heads in (
        [{}],
        [{"name": "a", "kind": "boxes", "classes": 5}],
        [{"name": 5, "kind": "choice", "classes": ["a"]}],
    ):
        refused(admin.post("/v1/ontologies", json={**bad, "heads": heads}), 422, "invalid-request")
    ref = {"name": "driving", "version": 1}
    refused(admin.post("/v1/lines", json={"name": "car", "ontology": ref}), 409, "name-taken")
    refused(
        admin.post("/v1/lines", json={"name": "bus", "ontology": {"name": "x", "version": 1}}), 404, "no-such-ontology"
    )
    assert admin.get(f"/v1/lines/{line['id']}").json()["champion_id"] is None
    started = admin.post(f"/v1/lines/{line['id']}:retrain", json={"target_heads": ["objects"]})
    assert admin.get(started.headers["location"]).json()["kind"] == "freeze"
    refused(admin.post(f"/v1/lines/{line['id']}:retrain", json={"target_heads": ["lanes"]}), 422, "invalid-ontology")
    refused(admin.post(f"/v1/lines/{line['id']}:rollback", json={"reason": "worse"}), 409, "not-promoted")


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
    refused(admin.post(f"/v1/queue/{items[0]}:drop", json={}), 409, "not-queued")
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


def gate_report(api: Any, line: dict[str, Any], model: dict[str, Any], golden: uuid.UUID, verdict: str) -> uuid.UUID:
    with api.session() as session:
        report = GateReport(
            id=new_id(),
            project_id=api.project_id,
            line_id=uuid.UUID(line["id"]),
            challenger_id=uuid.UUID(model["id"]),
            challenger_weights_sha256=model["weights_sha256"],
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


def test_dead_jobs_are_retried_by_hand(api: Any, admin: httpx.Client, line: dict[str, Any]) -> None:
    job = admin.post(f"/v1/lines/{line['id']}:retrain", json={"target_heads": ["objects"]}).json()["job_id"]
    refused(admin.post(f"/v1/jobs/{job}:retry"), 409, "job-not-dead")
    with api.session() as session:
        row = session.get_one(Job, uuid.UUID(job))
        row.state, row.last_error = "dead", "out of luck"
        session.commit()
    (dead,) = admin.get("/v1/jobs", params={"state": "dead"}).json()["items"]
    assert dead["last_error"] == "out of luck"
    assert admin.post(f"/v1/jobs/{job}:retry").json()["state"] == "due"
    refused(admin.post(f"/v1/jobs/{uuid.uuid4()}:retry"), 404, "no-such-job")


def test_metrics(api: Any, manifest: Callable[..., Any], video: bytes) -> None:
    api.post_clip(api.device(), manifest(), {"front": video})
    answer = api.token("metrics:read").get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'longtail_clips{split="pool",state="received"} 1.0' in answer.text


def test_pictures_by_signed_links(api: Any) -> None:
    out = io.BytesIO()
    Image.new("RGB", (64, 48), (200, 30, 30)).save(out, "PNG")
    stored = api.blobs.put(out.getvalue())
    links = MediaLinks(api.settings)
    nobody = api.client(None)
    path = links.path(stored.sha256)
    answer = nobody.get(path, headers={"Origin": "http://label-studio.example"})
    assert (answer.status_code, answer.content) == (200, out.getvalue())
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert nobody.get(path, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    small = nobody.get(path, params={"w": 16})
    assert small.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(small.content)).size == (16, 12)
    signature, expires, sha256 = path.split("/")[2:]
    refused(nobody.get(f"/media/{'0' * 64}/{expires}/{sha256}"), 403, "bad-link")
    refused(nobody.get(f"/media/{signature}/{int(expires) + 1}/{sha256}"), 403, "bad-link")
    refused(nobody.get(f"/media/{signature}/{expires}/{'a' * 64}"), 403, "bad-link")
    refused(nobody.get(links.path(stored.sha256, lasts_s=-7200)), 403, "bad-link")
    refused(nobody.get(links.path("b" * 64)), 404, "no-such-picture")
    text = api.blobs.put(b"no picture at all")
    refused(nobody.get(links.path(text.sha256)), 422, "media-rejected")
    assert time.time() < int(expires) < time.time() + 2 * 3600


def test_unknown_addresses_and_methods_are_problems(api: Any) -> None:
    nobody = api.client(None)
    refused(nobody.get("/v2/clips"), 404, "not-found")
    refused(nobody.delete("/healthz"), 405, "method-not-allowed")


def test_a_project_sees_nothing_of_another(
    api: Any, admin: httpx.Client, line: dict[str, Any], manifest: Callable[..., Any], video: bytes
) -> None:
    clip = api.post_clip(admin, manifest(), {"front": video}).json()["id"]
    job = admin.post(f"/v1/lines/{line['id']}:retrain", json={"target_heads": ["objects"]}).json()["job_id"]
    with api.session() as session:
        project = Project(id=new_id(), name="other")
        session.add(project)
        session.commit()
        api.project_id = project.id
    stranger = api.token("admin")
    for path in (
        f"/v1/clips/{clip}",
        f"/v1/lines/{line['id']}",
        f"/v1/jobs/{job}",
        f"/v1/ontologies/{line['ontology_id']}",
    ):
        assert admin.get(path).status_code == 200
        assert stranger.get(path).status_code == 404, path
    for path in ("/v1/clips", "/v1/lines", "/v1/jobs", "/v1/ontologies", "/v1/devices", "/v1/campaigns", "/v1/models"):
        assert stranger.get(path).json() == {"items": [], "next": None}
    assert len(stranger.get("/v1/tokens").json()["items"]) == 1
    refused(stranger.post(f"/v1/jobs/{job}:retry"), 404, "no-such-job")
    refused(stranger.post(f"/v1/lines/{line['id']}:retrain", json={"target_heads": ["objects"]}), 404, "no-such-line")
    refused(stranger.post(f"/v1/lines/{line['id']}:rollback", json={"reason": "no"}), 404, "no-such-line")
    body = {"ontology": {"name": "driving", "version": 1}, "source": "import"}
    label = {"clip": clip, "stream": "front", "pts": 0, "head": "objects", "value": {"objects": []}}
    assert stranger.post("/v1/labels:import", json={**body, "labels": [label]}).status_code == 404
    own = api.post_clip(stranger, manifest(drive={"external_id": "elsewhere"}), {"front": video})
    assert (own.status_code, own.json()["created"]) == (202, True)
    assert own.json()["id"] != clip
    assert len(api.blob_files()) == 1
