"""A model that nobody here can ask, over the API: registered without a file, judged and recorded by what is sent."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import httpx
from loop_fixtures import Loop
from weights_fixtures import NobodyAsked

from engine.jobs import ledger
from engine.stages.judge import judge
from engine.store.tables.models import ModelVersion

FRAME = {
    "objects": {"kind": "boxes", "value": {"objects": []}, "uncertainty": 0.25},
}
UNIT = [1.0] + [0.0] * 127


def refused(response: httpx.Response, status: int, code: str) -> None:
    assert response.status_code == status, response.text
    assert response.json()["type"] == f"/problems/{code}"


def registered(admin: httpx.Client, **more: Any) -> httpx.Response:
    text = {"line": "car", "format": "predictions", "config": json.dumps({"heads": ["objects"]})}
    return admin.post("/v1/models", files={**{k: (None, v) for k, v in text.items()}, **more})


def test_it_is_registered_with_any_file_or_none(admin: httpx.Client, line: dict[str, Any]) -> None:
    bare = registered(admin)
    assert bare.status_code == 201, bare.text
    (artifact,) = bare.json()["artifacts"]
    assert (artifact["format"], artifact["config"]) == ("predictions", {"heads": ["objects"]})
    with_file = registered(admin, weights=("engine.plan", b"a compiled engine"))
    assert with_file.json()["artifacts"][0]["size_bytes"] == len(b"a compiled engine")
    refused(admin.post("/v1/models", files={"line": (None, "car"), "config": (None, "{}")}), 422, "part-missing")


def test_predictions_of_a_clip_need_a_judged_model_and_are_recorded_once(
    api: Any, admin: httpx.Client, line: dict[str, Any], manifest: Callable[..., Any], video: bytes
) -> None:
    model = registered(admin).json()["id"]
    clip = admin.get(api.post_clip(api.device(), manifest(), {"front": video}).headers["location"]).json()
    pts = clip["streams"][0]["pts"]
    body = {
        "model": model,
        "clip": clip["id"],
        "frames": [{"stream": "front", "pts": pts[i], "answers": FRAME, "embedding": UNIT} for i in (0, 3)],
    }
    refused(admin.post("/v1/predictions", json=body), 409, "score-broken")
    with api.session() as session:
        session.get_one(ModelVersion, uuid.UUID(model)).score_reference = {"objects": [i / 100 for i in range(101)]}
        session.commit()
    made = admin.post("/v1/predictions", json=body)
    assert made.status_code == 201, made.text
    assert made.json() == {**made.json(), "created": True, "subjects": 2, "embeddings": 2}
    again = admin.post("/v1/predictions", json=body)
    assert (again.status_code, again.json()["created"]) == (200, False)
    assert again.json()["scoring_id"] == made.json()["scoring_id"]
    body["frames"] = body["frames"][:1]
    refused(admin.post("/v1/predictions", json=body), 409, "predictions-differ")
    keyed = admin.post("/v1/predictions", json=body, headers={"Idempotency-Key": "x"})
    refused(keyed, 422, "idempotency-key-unsupported")
    refused(api.token("models:read").post("/v1/predictions", json=body), 403, "missing-scope")
    nan = json.dumps(body).replace("0.25", "NaN")
    assert admin.post("/v1/predictions", content=nan, headers={"content-type": "application/json"}).status_code == 422
    assert admin.get(f"/v1/clips/{clip['id']}").json()["state"] == "scored"


def test_golden_pictures_are_listed_without_labels_and_their_answers_judged(
    api: Any, admin: httpx.Client, loop: Loop
) -> None:
    loop.labelled_drives(range(2))
    loop.labelled_drives(range(100, 103), "golden")
    loop.freeze()
    golden = loop.freeze_golden().id
    text = {"line": loop.line().name, "format": "predictions", "config": json.dumps({"heads": ["light"]})}
    model = admin.post("/v1/models", files={k: (None, v) for k, v in text.items()}).json()["id"]
    pages, after = [], None
    while True:
        query = {"limit": 4} | ({"after": after} if after else {})
        page = admin.get(f"/v1/golden-sets/{golden}/pictures", params=query).json()
        pages += page["items"]
        after = page["next"]
        if after is None:
            break
    assert len(pages) == len({picture["id"] for picture in pages}) == 6
    assert set(pages[0]) == {"id", "clip_id", "stream", "pts", "url"}
    path = httpx.URL(pages[0]["url"]).path
    assert admin.get(path).headers["content-type"] == "image/png"
    day = {"light": {"kind": "choice", "value": {"choice": "day"}, "uncertainty": 0.5}}
    body = {"model": model, "pictures": [{"subject": picture["id"], "answers": day} for picture in pages]}
    address = f"/v1/golden-sets/{golden}/predictions"
    twice = {**body, "pictures": [*body["pictures"], body["pictures"][0]]}
    refused(admin.post(address, json=twice), 422, "invalid-prediction")
    assert admin.post(address, json=body).status_code == 201
    assert admin.post(address, json=body).status_code == 200
    refused(admin.post(f"/v1/golden-sets/{uuid.uuid4()}/predictions", json=body), 404, "no-such-golden-set")
    refused(admin.get(f"/v1/golden-sets/{uuid.uuid4()}/pictures"), 404, "no-such-golden-set")
    asked = {
        "golden_set_id": str(golden),
        "waivers": [{"name": "retired_head", "head": "road", "why": "it knows no road"}],
    }
    assert admin.post(f"/v1/models/{model}:judge", json=asked).status_code == 202
    (lease,) = ledger.claim(loop.database, "judge", "tester")
    judge(loop.database, loop.blobs, loop.reader, NobodyAsked(), lease)
    (report,) = admin.get("/v1/gate-reports").json()["items"]
    assert report["verdict"] == "refused"
    assert all("'light'" in reason for reason in report["reasons"]), report["reasons"]
