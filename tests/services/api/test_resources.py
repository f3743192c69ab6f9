"""The other resources: pages of lists, access, jobs, health, metrics and media."""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from PIL import Image
from sqlalchemy import select

from engine.store.tables.access import AuditEntry, DeviceKey, Project
from engine.store.tables.metadata import new_id
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
    for wrong in ({"after": "x"}, {"state": "recieved"}, {"split": "gold"}):
        refused(reader.get("/v1/clips", params=wrong), 422, "invalid-request")
    assert len(reader.get("/v1/clips", params={"state": "received", "split": "pool"}).json()["items"]) == 5
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
            for name in ("line_id", "ontology_id", "project_id", "job_id", "device_id", "token_id"):
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


def test_what_is_answered_once_refuses_an_idempotency_key(api: Any, admin: httpx.Client, line: dict[str, Any]) -> None:
    key = {"Idempotency-Key": "k-1"}
    device = {"name": "van", "vehicles": ["sim-07"]}
    refused(admin.post("/v1/devices", json=device, headers=key), 422, "idempotency-key-unsupported")
    token = {"name": "reader", "scopes": ["jobs:read"]}
    refused(admin.post("/v1/tokens", json=token, headers=key), 422, "idempotency-key-unsupported")
    form = {"line": (None, "car"), "config": (None, "{}"), "weights": ("w", b"w")}
    refused(admin.post("/v1/models", files=form, headers=key), 422, "idempotency-key-unsupported")
    assert admin.get("/v1/devices").json()["items"] == []
    assert [shown["name"] for shown in admin.get("/v1/tokens").json()["items"]] == ["tester-admin"]
    assert (api.blob_files(), admin.get("/v1/models").json()["items"]) == ([], [])
    assert admin.post("/v1/devices", json=device).status_code == 201
    assert admin.post("/v1/tokens", json=token).status_code == 201


def test_no_post_leaves_an_idempotency_key_unheard(admin: httpx.Client) -> None:
    """It is kept, or refused, or the request does the same however often it is sent."""
    same_again = {"/v1/ontologies", "/v1/jobs/{job_id}:retry", "/v1/queue/{item_id}:prioritise"}
    same_again |= {"/v1/queue/{item_id}:drop", "/hooks/label-studio/{project_id}"}
    kept, ignored = [], []
    for path, methods in admin.get("/openapi.json").json()["paths"].items():
        if "post" not in methods:
            continue
        if any(parameter["name"] == "Idempotency-Key" for parameter in methods["post"].get("parameters", ())):
            kept.append(path)
            continue
        answer = admin.post(re.sub("{.*?}", str(uuid.uuid4()), path), headers={"Idempotency-Key": "k-1"}, json={})
        if answer.json()["type"] != "/problems/idempotency-key-unsupported":
            ignored.append(path)
    assert "/v1/lines/{line_id}:rollback" in kept
    assert set(ignored) == same_again


def test_dead_jobs_are_retried_by_hand(api: Any, admin: httpx.Client, line: dict[str, Any]) -> None:
    job = admin.post(f"/v1/lines/{line['id']}:retrain", json={"target_heads": ["objects"]}).json()["job_id"]
    refused(admin.post(f"/v1/jobs/{job}:retry"), 409, "job-not-dead")
    with api.session() as session:
        row = session.get_one(Job, uuid.UUID(job))
        row.state, row.last_error = "dead", "out of luck"
        session.commit()
    (dead,) = admin.get("/v1/jobs", params={"state": "dead", "kind": "freeze"}).json()["items"]
    refused(admin.get("/v1/jobs", params={"state": "daed"}), 422, "invalid-request")
    refused(admin.get("/v1/jobs", params={"kind": "freze"}), 422, "invalid-request")
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
