"""What no page answers itself is a page for people and a problem for programs."""

from __future__ import annotations

import httpx
import pytest
from sqlalchemy import text

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def break_pages(site, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the pages and the API fail over the jobs, as by a mistake of ours."""

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr("engine.queries.jobs.listing", fail)


def is_a_page(answer: httpx.Response, status: int) -> None:
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("text/html")
    assert "app.css" in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "private, no-store"


def is_a_problem(answer: httpx.Response, status: int) -> None:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_an_address_that_is_none(site):
    visitor = site.visitor()
    answer = visitor.get("/qeueu", headers=BROWSER)
    is_a_page(answer, 404)
    assert "/qeueu" in answer.text
    assert "Check the address" in answer.text
    assert "<b>" not in visitor.get("/<b>", headers=BROWSER).text
    is_a_problem(visitor.get("/qeueu"), 404)
    is_a_problem(visitor.get("/v1/qeueu", headers=BROWSER), 404)
    wrong_method = visitor.delete("/jobs", headers=BROWSER)
    is_a_page(wrong_method, 405)


def test_a_failure_on_our_side(site, monkeypatch):
    visitor, token = site.visitor(), site.secret("jobs:read")
    break_pages(site, monkeypatch)
    answer = visitor.get("/jobs", headers=BROWSER)
    is_a_page(answer, 500)
    assert "failed on our side" in answer.text
    assert "secret of the inside" not in answer.text
    part = visitor.get("/jobs", headers={"HX-Request": "true"})
    assert (part.status_code, part.headers["hx-retarget"]) == (500, "#notice")
    assert "<html" not in part.text
    is_a_problem(visitor.get("/jobs"), 500)
    is_a_problem(visitor.get("/v1/jobs", headers={**BROWSER, "Authorization": f"Bearer {token}"}), 500)


def test_a_database_that_lacks_its_tables(site):
    visitor = site.visitor()
    with site.engine.begin() as connection:
        connection.execute(text("ALTER TABLE jobs RENAME TO lost"))
    answer = visitor.get("/jobs", headers=BROWSER)
    is_a_page(answer, 503)
    assert "longtail up" in answer.text
