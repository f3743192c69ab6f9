"""The schedules page: what fires when, what came of it, and what is done to schedules."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.store.tables.access import AuditEntry
from engine.store.tables.work import Job, Schedule, ScheduleFiring
from services.dashboard.pages import schedules as schedules_page

HX = {"HX-Request": "true"}


def token_of(page: str) -> str:
    return re.search('name="form_token" value="([0-9a-f]+)"', page).group(1)


def row_of(page: str, schedule_id: Any) -> str:
    """A schedule's row as plain words."""
    row = re.search(f'<tr id="schedule-{schedule_id}">(.*?)</tr>', page, re.S).group(1)
    return " ".join(re.sub("<[^>]+>", " ", row).split())


def free_the_line(site: Any) -> None:
    with Session(site.engine) as session:
        session.execute(Job.__table__.update().where(Job.kind == "freeze").values(state="done"))
        session.connection().exec_driver_sql("UPDATE runs SET state = 'finished'")
        session.commit()


def test_each_says_when_it_fires_next_or_what_it_waits_for(full_site):
    ids = full_site.fleet.schedule_ids
    page = full_site.visitor().get("/schedules").text
    assert "At 03:30 on Monday, Europe/Berlin lanes, objects active in 3 days" in row_of(page, ids["weekly"])
    running = full_site.fleet.run_ids[-1]
    assert f"waiting waits for run {str(running)[-8:]} of its line never" in row_of(page, ids["overdue"])
    assert f'<a href="/runs/{running}">' in page
    assert "at 500 new labels (human, import) lanes, objects active 412 of 500" in row_of(page, ids["fed by labels"])
    assert "paused –" in row_of(page, ids["rested"])


def test_what_its_firings_made_is_linked_and_what_they_did_not_is_told(full_site):
    fleet = full_site.fleet
    page = full_site.visitor().get("/schedules").text
    made = page[page.index("What they made") :]
    for link in (f"/datasets/{fleet.dataset_ids[-1]}", f"/models/{fleet.model_ids[3]}", f"/runs/{fleet.run_ids[-1]}"):
        assert f'href="{link}"' in made, link
    words = " ".join(re.sub("<[^>]+>", " ", made).split())
    assert "500 new labels dead freezing failed : the picture can&#39;t be decoded" in words
    assert "there is no time zone &#39;Moon&#39;" in words
    assert "token:ada, by hand freezing" in words
    assert "v4 passed" in words


def test_firings_follow_each_other_page_by_page(full_site, monkeypatch):
    monkeypatch.setattr(schedules_page, "FIRINGS", 2)
    client = full_site.visitor()
    address, seen = "/schedules", []
    while address:
        page = client.get(address).text
        seen += re.findall('data-label="fired"><time datetime="([^"]+)"', page)
        more = re.search('href="([^"]+)" rel="next"', page)
        address = more and more.group(1)
    assert len(seen) == len(set(seen)) == 5


def test_pause_resume_run_and_remove(full_site):
    ids = full_site.fleet.schedule_ids
    client = full_site.visitor()
    token = {"form_token": token_of(client.get("/schedules").text)}
    weekly = f"/schedules/{ids['weekly']}"
    done = client.post(f"{weekly}/pause", data=token, headers=HX)
    assert "weekly is paused." in done.text
    assert "paused" in row_of(done.text, ids["weekly"])
    busy = client.post(f"{weekly}/run", data=token, headers=HX)
    assert (busy.status_code, busy.headers["hx-retarget"]) == (409, "#notice")
    assert "run now: a run of its line is running" in busy.text
    free_the_line(full_site)
    assert "freezing" in client.post(f"{weekly}/run", data=token, headers=HX).text
    assert "active" in row_of(client.post(f"{weekly}/resume", data=token, headers=HX).text, ids["weekly"])
    gone = client.post(f"{weekly}/remove", data=token)  # as without scripts
    assert (gone.status_code, gone.headers["location"]) == (303, "/schedules")
    assert str(ids["weekly"]) not in client.get("/schedules").text
    with Session(full_site.engine) as session:
        assert session.get(Schedule, ids["weekly"]) is None
        assert session.scalars(select(ScheduleFiring).where(ScheduleFiring.schedule_id == ids["weekly"])).all() == []
        acts = session.scalars(select(AuditEntry.act).where(AuditEntry.object_id == str(ids["weekly"]))).all()
        assert sorted(acts) == ["pause", "resume", "run_now", "unschedule"]


def test_forms_are_of_this_session_and_of_those_who_may(full_site):
    ids = full_site.fleet.schedule_ids
    address = f"/schedules/{ids['weekly']}/pause"
    writer, reader = full_site.visitor("schedules:read", "schedules:write"), full_site.visitor("schedules:read")
    page = reader.get("/schedules").text
    assert "Run now" not in page
    assert reader.post(address, data={"form_token": token_of(page)}).status_code == 403
    assert writer.post(address, data={"form_token": token_of(page)}).status_code == 403, "another session's form"
    good = {"form_token": token_of(writer.get("/schedules").text)}
    assert writer.post(address, data=good, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    with Session(full_site.engine) as session:
        assert session.get_one(Schedule, ids["weekly"]).enabled
    assert writer.post(address, data=good).status_code == 303
    other = full_site.visitor("jobs:read")
    assert other.get("/schedules").status_code == 403
    assert "/schedules" not in other.get("/jobs").text
