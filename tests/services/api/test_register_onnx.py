"""A model made elsewhere is uploaded with a declaration of its heads, or refused with what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from onnx_models import square_detector, squares_declared

from engine.store.lines import model_files

CAR = {"name": "objects", "classes": ["car"]}


def post(admin: httpx.Client, config: Any, content: bytes, **changes: str) -> httpx.Response:
    text = {"line": "car", "format": "onnx", "config": json.dumps(config), **changes}
    parts: dict[str, Any] = {name: (None, value) for name, value in text.items()}
    return admin.post("/v1/models", files={**parts, "weights": ("m.onnx", content)})


def test_an_onnx_file_becomes_a_version_of_its_line(api: Any, admin: httpx.Client, line: dict[str, Any]) -> None:
    content = square_detector().SerializeToString()
    made = post(admin, squares_declared(**CAR), content, note="squares")
    assert made.status_code == 201, made.text
    shown = made.json()
    assert (shown["line"], shown["origin"], shown["heads"], shown["note"]) == (
        "car",
        "registered",
        ["objects"],
        "squares",
    )
    (artifact,) = shown["artifacts"]
    assert (artifact["format"], artifact["sha256"], artifact["size_bytes"]) == (
        "onnx",
        shown["weights_sha256"],
        len(content),
    )
    with api.session() as session:
        files = model_files(session, api.blobs, shown["id"])
    assert files.weights.read_bytes() == content
    assert (files.sha256, [head.name for head in files.heads]) == (shown["weights_sha256"], ["objects"])


@pytest.mark.parametrize(
    ("config", "content", "changes", "code", "why"),
    [
        (squares_declared(**CAR), b"no model", {}, "model-rejected", "no ONNX model"),
        (squares_declared(**CAR, nms=7), None, {}, "invalid-config", "heads.0.boxes.nms"),
        (squares_declared(name="lanes", classes=["car"]), None, {}, "invalid-config", "lanes"),
        (squares_declared(**CAR, outputs={"boxes": "b", "scores": "s"}), None, {}, "model-rejected", "no output 'b'"),
        (squares_declared(**CAR), None, {"format": "pickle"}, "unknown-format", "'pickle'"),
        (squares_declared(**CAR), None, {"format": "hydranet-safetensors"}, "weights-rejected", "no safetensors"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_kept(
    api: Any,
    admin: httpx.Client,
    line: dict[str, Any],
    config: Any,
    content: bytes | None,
    changes: Any,
    code: str,
    why: str,
) -> None:
    content = square_detector().SerializeToString() if content is None else content
    refused = post(admin, config, content, **changes)
    assert (refused.status_code, refused.json()["type"]) == (422, f"/problems/{code}"), refused.text
    assert why in refused.json()["detail"]
    assert refused.json()["hint"]
    assert admin.get("/v1/models").json()["items"] == []
    assert api.blob_files() == []
