"""Label Studio as we run it: ready to use, telling nobody, closed to strangers."""

from __future__ import annotations

import re

import httpx
import pytest

from services.local.label_studio import LabelStudioServer

pytestmark = [pytest.mark.label_studio, pytest.mark.slow]


def test_it_is_the_pinned_version_and_knows_our_token(label_studio: LabelStudioServer) -> None:
    with httpx.Client(base_url=label_studio.url, headers={"Authorization": f"Token {label_studio.token}"}) as client:
        assert client.get("/api/version").json()["release"] == "1.23.2"
        assert client.get("/api/current-user/whoami").json()["email"] == label_studio.email
    assert httpx.get(f"{label_studio.url}/api/projects").status_code == 401


def test_its_user_can_sign_in_and_a_stranger_cannot_sign_up(label_studio: LabelStudioServer) -> None:
    with httpx.Client(base_url=label_studio.url) as client:
        form = client.get("/user/login").text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form).group(1)
        entry = {"csrfmiddlewaretoken": token, "email": label_studio.email, "password": label_studio.password}
        assert client.post("/user/login", data=entry).status_code == 302
    with httpx.Client(base_url=label_studio.url) as client:
        form = client.get("/user/signup").text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form).group(1)
        entry = {"csrfmiddlewaretoken": token, "email": "stranger@example.com", "password": "correct horse battery"}
        assert client.post("/user/signup", data=entry).status_code == 403


def test_a_webhook_to_this_machine_is_allowed_and_pages_load_no_telemetry(label_studio: LabelStudioServer) -> None:
    headers = {"Authorization": f"Token {label_studio.token}"}
    with httpx.Client(base_url=label_studio.url, headers=headers) as client:
        project = client.post("/api/projects/", json={"title": "hooked"}).json()["id"]
        hook = client.post("/api/webhooks/", json={"url": "http://127.0.0.1:9/hook", "project": project})
        assert hook.status_code == 201, hook.text
        assert client.delete(f"/api/webhooks/{hook.json()['id']}/").status_code == 204
        assert "sentry" not in client.get("/user/login").text.lower().replace("sentry-cdn", "")
