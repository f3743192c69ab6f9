"""A scorer elsewhere is registered over the API by its URL, if the operator lets us go there and it answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from loop_fixtures import Loop
from scorer_server import ScorerServer

from services.settings import Settings


def post(admin: httpx.Client, line: str, config: dict[str, Any], **files: Any) -> httpx.Response:
    text = {"line": line, "format": "http", "config": json.dumps(config)}
    return admin.post("/v1/models", files={**{name: (None, value) for name, value in text.items()}, **files})


@pytest.fixture
def allowed(api: Any) -> None:
    """The operator lets scorers be on this machine. Settings can't be changed, so these are others."""
    object.__setattr__(api.settings, "outbound_networks", ["127.0.0.0/8"])


@pytest.fixture
def line(loop: Loop) -> str:
    loop.labelled_drives(range(2), "golden")
    loop.freeze_golden()
    return loop.line().name


def test_it_becomes_a_version_that_is_held_to_its_answers(
    allowed: None, admin: httpx.Client, line: str, scorer_server: ScorerServer, loop: Loop
) -> None:
    made = post(admin, line, {"url": scorer_server.url, "heads": ["road"]})
    assert made.status_code == 201, made.text
    (artifact,) = made.json()["artifacts"]
    assert (artifact["format"], artifact["config"]["url"]) == ("http", scorer_server.url)
    document = json.loads(loop.blobs.read(artifact["sha256"]))
    assert len(document["probes"]) == len(scorer_server.seen[0]["pictures"]) == 2
    assert [head["name"] for head in scorer_server.seen[0]["heads"]] == ["road"]


def test_what_is_wrong_is_said(
    allowed: None, admin: httpx.Client, line: str, scorer_server: ScorerServer, make_loop: Callable[..., Loop]
) -> None:
    def refused(config: dict[str, Any], code: str, line: str = line, **files: Any) -> str:
        answer = post(admin, line, {"url": scorer_server.url, "heads": ["road"], "timeout_s": 2, **config}, **files)
        assert (answer.status_code, answer.json()["type"]) == (422, f"/problems/{code}"), answer.text
        return str(answer.json()["detail"])

    assert "'moon'" in refused({"heads": ["moon"]}, "invalid-config")
    assert "has no file" in refused({}, "part-unknown", weights=("w", b"x"))
    assert "no golden set" in refused({}, "no-golden-set", line=make_loop().line().name)
    assert "169.254.169.254" in refused({"url": "http://169.254.169.254/latest"}, "address-refused")
    scorer_server.answer = lambda request: {"answers": []}
    assert "a list of 2" in refused({}, "scorer-answer-invalid")
    scorer_server.stop()
    assert "3 tries" in refused({}, "scorer-unreachable")
    assert admin.get("/v1/models").json()["items"] == []


def test_without_the_operators_word_no_private_address_is_gone_to(
    admin: httpx.Client, line: str, scorer_server: ScorerServer
) -> None:
    answer = post(admin, line, {"url": scorer_server.url, "heads": ["road"]})
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/address-refused")
    assert scorer_server.seen == []


def test_networks_are_checked_when_they_are_set() -> None:
    assert Settings(outbound_networks=["10.1.0.0/16"]).outbound_networks == ["10.1.0.0/16"]
    with pytest.raises(ValueError, match="outbound_networks"):
        Settings(outbound_networks=["everything"])
