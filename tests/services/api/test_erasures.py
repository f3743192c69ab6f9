"""Erasures, holds and retention over HTTP: who may ask, what is told, and what a vehicle hears that sends it again."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from erasure_fixtures import Untouched

from engine.adapters.local_copies import DataFolderCopies
from engine.jobs import ledger
from engine.stages.erase import erase
from engine.store.unit_of_work import Database
from services.wiring import Undispatched

Manifest = Callable[..., dict[str, Any]]


@pytest.fixture
def clip(api: Any, admin: Any, manifest: Manifest, video: bytes) -> str:
    sent = api.post_clip(admin, manifest("c-1"), {"front": video})
    assert sent.status_code == 202, sent.text
    return str(sent.json()["id"])


def do_erase(api: Any) -> None:
    database = Database(api.engine, Undispatched())
    (lease,) = ledger.claim(database, "erase", "tester")
    tool: Any = Untouched()
    assert erase(database, api.blobs, tool, DataFolderCopies(api.settings.data_dir), lease, 0) == "done"


def test_an_erasure_from_the_request_to_the_receipt(
    api: Any, admin: Any, clip: str, manifest: Manifest, video: bytes
) -> None:
    asked = admin.post("/v1/erasures", json={"vehicle": "sim-07", "reason": "the owner asked"})
    assert asked.status_code == 202, asked.text
    told = asked.json()
    assert (told["state"], told["scope_kind"], told["requested_by"]) == ("due", "vehicle", "token:tester-admin")
    assert asked.headers["location"] == f"/v1/erasures/{told['id']}"
    again = admin.post("/v1/erasures", json={"vehicle": "sim-07"})
    assert (again.status_code, again.json()["id"]) == (200, told["id"])
    do_erase(api)
    done = admin.get(asked.headers["location"]).json()
    assert (done["state"], done["receipt"]["removed"]["clips"]) == ("done", 1)
    assert [each["id"] for each in admin.get("/v1/erasures?state=done").json()["items"]] == [told["id"]]
    assert admin.get("/v1/clips").json()["items"] == []
    assert api.blob_files() == []

    gone = admin.get(f"/v1/clips/{clip}")
    assert (gone.status_code, gone.json()["type"]) == (410, "/problems/erased")
    assert told["id"] in gone.json()["hint"]
    resent = api.post_clip(admin, manifest("c-1"), {"front": video})
    assert (resent.status_code, resent.json()["type"]) == (410, "/problems/erased")
    assert told["id"] in resent.json()["detail"]
    assert api.blob_files() == []
    assert admin.get(f"/v1/clips/{uuid.uuid4()}").status_code == 404


def test_a_kept_answer_brings_nothing_back(api: Any, admin: Any, manifest: Manifest, video: bytes) -> None:
    key = {"Idempotency-Key": "clip-1"}
    clip = api.post_clip(admin, manifest("c-1"), {"front": video}, key).json()["id"]
    asked = admin.post("/v1/erasures", json={"clip": clip}, headers={"Idempotency-Key": "e-1"})
    assert asked.status_code == 202
    assert admin.post("/v1/erasures", json={"clip": clip}, headers={"Idempotency-Key": "e-1"}).json() == asked.json()
    do_erase(api)
    assert api.post_clip(admin, manifest("c-1"), {"front": video}, key).status_code == 410


def test_holds_stand_in_the_way_and_say_so(api: Any, admin: Any, clip: str) -> None:
    placed = admin.post("/v1/holds", json={"vehicle": "sim-07", "reason": "case 12"})
    assert placed.status_code == 201, placed.text
    hold = placed.json()
    assert admin.get(f"/v1/clips/{clip}").json()["legal_hold"] is True
    refused = admin.post("/v1/erasures", json={"clip": clip})
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/legal-hold")
    assert "case 12" in refused.json()["detail"]
    assert [each["id"] for each in admin.get("/v1/holds?standing=true").json()["items"]] == [hold["id"]]
    lifted = admin.post(f"/v1/holds/{hold['id']}:lift", json={"reason": "settled"}).json()
    assert lifted["lifted_by"] == "token:tester-admin"
    assert admin.get("/v1/holds?standing=true").json()["items"] == []
    assert admin.get(f"/v1/clips/{clip}").json()["legal_hold"] is False
    assert admin.post("/v1/erasures", json={"clip": clip}).status_code == 202


def test_retention_is_said_and_told(admin: Any) -> None:
    assert admin.get("/v1/retention").json() == {"keep_days": None, "changed_by": None, "changed_at": None}
    told = admin.put("/v1/retention", json={"keep_days": 90}).json()
    assert (told["keep_days"], told["changed_by"]) == (90, "token:tester-admin")
    assert admin.put("/v1/retention", json={"keep_days": None}).json()["keep_days"] is None
    assert admin.put("/v1/retention", json={"keep_days": 0}).status_code == 422


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, "target-unclear"),
        ({"vehicle": "sim-07", "clip": str(uuid.UUID(int=1))}, 422, "target-unclear"),
        ({"vehicle": "nobody"}, 404, "no-such-vehicle"),
        ({"drive": "nowhere"}, 404, "no-such-drive"),
        ({"clip": str(uuid.UUID(int=1))}, 404, "no-such-clip"),
        ({"vehicles": "all"}, 422, "invalid-request"),
    ],
)
def test_what_is_not_clear_or_not_there_is_refused(
    admin: Any, clip: str, body: dict[str, str], status: int, code: str
) -> None:
    told = admin.post("/v1/erasures", json=body)
    assert (told.status_code, told.json()["type"]) == (status, f"/problems/{code}")


def test_each_needs_its_own_scope(api: Any, clip: str) -> None:
    reader, eraser, keeper = (
        api.token("erasures:read", "holds:read"),
        api.token("erasures:write"),
        api.token("holds:write"),
    )
    for address in ("/v1/erasures", "/v1/holds", "/v1/retention"):
        assert reader.get(address).status_code == 200
        assert api.client(None).get(address).status_code == 401
    assert reader.post("/v1/erasures", json={"clip": clip}).status_code == 403
    assert keeper.post("/v1/erasures", json={"clip": clip}).status_code == 403
    assert eraser.post("/v1/holds", json={"clip": clip, "reason": "x"}).status_code == 403
    assert reader.put("/v1/retention", json={"keep_days": 1}).status_code == 403
    assert api.device("sim-07").post("/v1/erasures", json={"clip": clip}).status_code == 403
    assert keeper.post("/v1/holds", json={"clip": clip, "reason": "x"}).status_code == 201
