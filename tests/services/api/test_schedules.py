"""Schedules over the API: made, listed, paused, resumed, run and removed, each by those who may."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from engine.stages.fire_retrains import fire_retrains
from engine.store.unit_of_work import Database
from services.wiring import Undispatched

CRON = {"name": "weekly", "line": "car", "target_heads": ["objects"], "cron": "30 3 * * MON"}
LABELS = {"name": "fed", "line": "car", "target_heads": ["objects", "depth"], "new_labels": 500}


def refused(response: httpx.Response, status: int, code: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["type"] == f"/problems/{code}"


def execute(api: Any, sql: str) -> None:
    with api.session() as session:
        session.execute(text(sql))
        session.commit()


def make(admin: httpx.Client, asked: dict[str, Any], **headers: str) -> dict[str, Any]:
    made = admin.post("/v1/schedules", json=asked, headers=headers)
    assert made.status_code == 201, made.text
    assert made.headers["location"] == f"/v1/schedules/{made.json()['id']}"
    return made.json()


def test_a_schedule_is_made_once_and_told_whole(admin: httpx.Client, line: dict[str, Any]) -> None:
    asked = CRON | {"time_zone": "Europe/Berlin", "start": "scratch", "noise_seeds": [7], "overrides": {"steps": 9}}
    key = {"Idempotency-Key": "weekly-1"}
    made = make(admin, asked, **key)
    assert make(admin, asked, **key) == made
    refused(admin.post("/v1/schedules", json=CRON, headers=key), 422, "idempotency-key-reused")
    refused(admin.post("/v1/schedules", json=asked), 409, "name-taken")
    coming = datetime.fromisoformat(made.pop("next_due"))
    assert coming > datetime.now(UTC)
    assert coming.weekday() == 0
    assert made.pop("created_at")
    assert made.pop("created_by") == "token:tester-admin"
    assert made == {
        "id": made["id"],
        "name": "weekly",
        "line_id": line["id"],
        "line": "car",
        "cron": "30 3 * * MON",
        "time_zone": "Europe/Berlin",
        "new_labels": None,
        "label_sources": None,
        "rule": "At 03:30 on Monday, Europe/Berlin",
        "target_heads": ["objects"],
        "start": "scratch",
        "noise_seeds": [7],
        "overrides": {"steps": 9},
        "state": "active",
        "waits_for": None,
        "waits_for_run_id": None,
        "counted": None,
        "needed": None,
        "counted_at": None,
        "last": None,
    }
    fed = make(admin, LABELS)
    assert (fed["rule"], fed["needed"], fed["next_due"]) == ("at 500 new labels (human, import)", 500, None)
    first = admin.get("/v1/schedules", params={"limit": 1}).json()
    second = admin.get("/v1/schedules", params={"limit": 1, "after": first["next"]}).json()
    assert [row["name"] for page in (first, second) for row in page["items"]] == ["weekly", "fed"]
    assert second["next"] is None
    assert admin.get("/v1/schedules", params={"line": "bus"}).json()["items"] == []
    got = admin.get(f"/v1/schedules/{fed['id']}")
    assert got.json() == fed
    assert admin.get(f"/v1/schedules/{fed['id']}", headers={"If-None-Match": got.headers["etag"]}).status_code == 304


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"new_labels": 3}, 422, "one-rule"),
        ({"cron": None}, 422, "one-rule"),
        ({"cron": "61 * * * *"}, 422, "invalid-cron"),
        ({"cron": "0 0 0 * * *"}, 422, "invalid-cron"),
        ({"time_zone": "../../etc/passwd"}, 422, "unknown-time-zone"),
        ({"name": "push:7"}, 422, "invalid-name"),
        ({"line": "bus"}, 404, "no-such-line"),
        ({"target_heads": ["lanes"]}, 422, "invalid-ontology"),
        ({"target_heads": []}, 422, "invalid-request"),
        ({"noise_seeds": [2**31]}, 422, "invalid-request"),
        ({"cron": None, "new_labels": 0}, 422, "invalid-request"),
        ({"cron": None, "new_labels": 3, "label_sources": ["auto"]}, 422, "invalid-request"),
        ({"every": 3}, 422, "invalid-request"),
    ],
)
def test_what_can_not_be_kept_to_is_a_problem(
    admin: httpx.Client, line: dict[str, Any], changes: dict[str, Any], status: int, code: str
) -> None:
    refused(admin.post("/v1/schedules", json=CRON | changes), status, code)
    assert admin.get("/v1/schedules").json()["items"] == []


def test_pause_resume_run_and_remove(api: Any, admin: httpx.Client, line: dict[str, Any]) -> None:
    here = f"/v1/schedules/{make(admin, CRON)['id']}"
    paused = admin.post(f"{here}:pause").json()
    assert (paused["state"], paused["next_due"]) == ("paused", None)
    assert admin.post(f"{here}:pause", headers={"Idempotency-Key": "p"}).json() == paused
    resumed = admin.post(f"{here}:resume").json()
    assert (resumed["state"], resumed["next_due"] is None) == ("active", False)
    assert admin.post(f"{here}:pause", headers={"Idempotency-Key": "p"}).json() == paused, "an old request, come late"
    assert admin.get(here).json()["state"] == "active", "pauses it no second time"
    key = {"Idempotency-Key": "run-1"}
    started = admin.post(f"{here}:run", headers=key)
    assert started.status_code == 202
    job = admin.get(started.headers["location"]).json()
    assert (job["kind"], job["subject_id"], job["payload"]["target_heads"]) == ("freeze", line["id"], ["objects"])
    again = admin.post(f"{here}:run", headers=key)
    assert (again.status_code, again.json()) == (202, started.json()), "sent again, it is the same act"
    refused(admin.post(f"{here}:run"), 409, "line-busy")
    last = admin.get(here).json()["last"]
    assert (last["job_id"], last["asked_by"], last["job_state"], last["runs"]) == (
        job["id"], "token:tester-admin", "due", [],
    )  # fmt: skip
    assert admin.get(f"{here}/firings").json()["items"] == [last]
    assert admin.delete(here).status_code == 204
    for gone in (admin.get(here), admin.delete(here), admin.post(f"{here}:run"), admin.get(f"{here}/firings")):
        refused(gone, 404, "no-such-schedule")
    assert admin.get(started.headers["location"]).json()["state"] == "due", "what it made goes on"


def test_what_waits_says_for_what(api: Any, admin: httpx.Client, line: dict[str, Any]) -> None:
    here = f"/v1/schedules/{make(admin, CRON)['id']}"
    asked = admin.post(f"/v1/lines/{line['id']}:retrain", json={"target_heads": ["objects"]})
    assert asked.status_code == 202
    execute(api, "UPDATE schedules SET next_due = clock_timestamp() - interval '1 hour'")
    database = Database(api.engine, Undispatched())
    assert fire_retrains(database) == 0
    told = admin.get(here).json()
    assert told["state"] == "waiting"
    assert asked.json()["job_id"] in told["waits_for"]
    execute(api, "UPDATE jobs SET state = 'done'")
    assert admin.get(here).json()["state"] == "due"
    assert fire_retrains(database) == 1
    assert admin.get(here).json()["last"]["due"] == told["next_due"]


def test_reading_is_not_writing_and_nothing_is_open(api: Any, admin: httpx.Client, line: dict[str, Any]) -> None:
    here = f"/v1/schedules/{make(admin, CRON)['id']}"
    reader, writer, neither = api.token("schedules:read"), api.token("schedules:write"), api.token("models:write")
    nobody = api.client(None)
    acts = [("POST", f"{here}:{verb}") for verb in ("pause", "resume", "run")] + [("DELETE", here)]
    for method, address in [("POST", "/v1/schedules"), *acts]:
        body = LABELS if address == "/v1/schedules" else None
        refused(reader.request(method, address, json=body), 403, "missing-scope")
        refused(neither.request(method, address, json=body), 403, "missing-scope")
        refused(nobody.request(method, address, json=body), 401, "no-token")
    for address in ("/v1/schedules", here, f"{here}/firings"):
        assert reader.get(address).status_code == 200
        refused(writer.get(address), 403, "missing-scope")
        refused(nobody.get(address), 401, "no-token")
    assert writer.post(f"{here}:pause").json()["state"] == "paused"
    refused(admin.get(f"/v1/schedules/{uuid.uuid4()}"), 404, "no-such-schedule")
