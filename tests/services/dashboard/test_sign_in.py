"""Sessions: who gets one, what it opens, and what can't be done with it."""

from __future__ import annotations

import re
import time
import uuid

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.stages.access import make_device, revoke_token
from engine.store.tables.access import Token
from engine.store.tables.labels import QueueItem
from engine.store.unit_of_work import Database
from services.dashboard.session import COOKIE, LASTS_S, Sessions, SignedIn, local_path
from services.wiring import Undispatched


def form_token(page: str) -> str:
    return re.search('name="form_token" value="([0-9a-f]+)"', page).group(1)


def test_a_page_asks_to_sign_in_and_goes_on_where_one_was(site):
    client = site.client()
    sent = client.get("/queue?arm=control")
    assert sent.status_code == 303
    assert sent.headers["location"] == "/login?next=/queue%3Farm%3Dcontrol"
    form = client.get(sent.headers["location"])
    assert 'value="/queue?arm=control"' in form.text
    entered = client.post("/login", data={"token": site.secret("queue:read"), "next": "/queue?arm=control"})
    assert (entered.status_code, entered.headers["location"]) == (303, "/queue?arm=control")
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert client.get("/queue").status_code == 200


def test_a_wrong_token_and_a_devices_key_open_nothing(site):
    database = Database(site.engine, Undispatched())
    with database.unit() as unit:
        _, device = make_device(unit, site.project_id, "gateway", (), True, "test")
        unit.commit()
    client = site.client()
    for secret in ("lt_token_wrong", "", device):
        answer = client.post("/login", data={"token": secret})
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
        assert "not known here" in answer.text


def test_a_token_that_reads_nothing_is_told_so(site):
    answer = site.client().post("/login", data={"token": site.secret("labels:write")})
    assert answer.status_code == 403
    assert ":read" in answer.text


def test_a_revoked_token_ends_its_sessions(site):
    client = site.visitor("queue:read")
    assert client.get("/queue").status_code == 200
    database = Database(site.engine, Undispatched())
    with database.unit() as unit:
        token = unit.session.execute(select(Token)).scalars().one()
        revoke_token(unit, site.project_id, token.id, "test")
        unit.commit()
    assert client.get("/queue").status_code == 303
    # A part of a page that is polled sends the whole page there.
    part = client.get("/loop/now", headers={"HX-Request": "true"})
    assert (part.status_code, part.headers["hx-redirect"]) == (401, "/login")


def test_a_page_needs_its_scope_and_the_menu_shows_no_other(site):
    client = site.visitor("queue:read")
    refused = client.get("/models")
    assert refused.status_code == 403
    assert "models:read" in refused.text
    page = client.get("/").text
    assert 'href="/queue"' in page
    assert 'href="/jobs">' not in page


def test_signing_out_ends_the_session_in_this_browser(site):
    client = site.visitor()
    client.post("/logout", data={"form_token": "0" * 64})
    assert client.get("/").status_code == 200, "another site signed us out"
    client.post("/logout", data={"form_token": form_token(client.get("/").text)})
    assert client.get("/").status_code == 303


def test_forms_from_elsewhere_do_nothing(full_site):
    fleet = full_site.fleet
    client, other = full_site.visitor(), full_site.visitor()
    address = f"/queue/{fleet.item_ids[0]}/drop"
    good = form_token(client.get("/queue").text)
    assert client.post(address).status_code == 403
    assert client.post(address, data={"form_token": form_token(other.get("/queue").text)}).status_code == 403
    crossed = client.post(address, data={"form_token": good}, headers={"Sec-Fetch-Site": "cross-full_site"})
    assert crossed.status_code == 403
    with Session(full_site.engine) as session:
        assert session.get_one(QueueItem, fleet.item_ids[0]).state == "queued"
    assert client.post(address, data={"form_token": good}).status_code == 303
    with Session(full_site.engine) as session:
        assert session.get_one(QueueItem, fleet.item_ids[0]).state == "dropped"


def test_reading_is_not_writing(full_site):
    fleet = full_site.fleet
    client = full_site.visitor("queue:read")
    page = client.get("/queue").text
    assert "data-drop" not in page
    answer = client.post(f"/queue/{fleet.item_ids[0]}/drop", data={"form_token": form_token(page)})
    assert answer.status_code == 403
    assert "queue:write" in answer.text


def test_headers_keep_pages_safe(site):
    client = site.visitor()
    for address in ("/", "/login", "/queue", f"/clips/{uuid.uuid4()}"):
        headers = client.get(address).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "private, no-store"


def test_no_such_thing_is_a_page_that_says_so(site):
    client = site.visitor()
    answer = client.get(f"/gate-reports/{uuid.uuid4()}")
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "There is no gate report" in answer.text
    assert client.get("/gate-reports/not-an-id").status_code == 422


def test_cookies_are_of_our_making_and_expire(site, monkeypatch):
    sessions = Sessions(site.settings)
    token_id = uuid.uuid4()
    cookie = sessions.start(token_id)
    assert sessions.read(cookie).token_id == token_id
    identity, expires, nonce, signature = cookie.split(".")
    for forged in (
        None,
        "",
        "a.b.c.d",
        f"{uuid.uuid4().hex}.{expires}.{nonce}.{signature}",
        f"{identity}.{int(expires) + 1}.{nonce}.{signature}",
        f"{identity}.{expires}.{nonce}.é",
    ):
        assert sessions.read(forged) is None
    # What a form carries is no cookie, though the same key made it.
    signed_in = SignedIn(token_id, int(expires), nonce)
    assert sessions.read(f"{identity}.{expires}.{nonce}.{sessions.form_token(signed_in)}") is None
    later = time.time() + LASTS_S + 1
    monkeypatch.setattr(time, "time", lambda: later)
    assert sessions.read(cookie) is None


def test_the_cookie_is_for_https_alone_where_the_site_is(site):
    client = site.client()
    answer = client.post("/login", data={"token": site.secret("queue:read")})
    assert "Secure" not in answer.headers["set-cookie"]
    assert answer.cookies[COOKIE]


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("/queue?arm=control", "/queue?arm=control"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/\nSet-Cookie: a=b", "/"),
        ("", "/"),
        (None, "/"),
    ],
)
def test_nobody_is_sent_elsewhere(given, taken):
    assert local_path(given) == taken
