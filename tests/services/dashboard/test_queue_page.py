"""The queue page over its real rows: filters, order, paging, and what is done to items."""

from __future__ import annotations

import io
import re
from urllib.parse import unquote

import pytest
from PIL import Image
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.queries.queue_cards import Card
from engine.store.tables.access import AuditEntry
from engine.store.tables.labels import Campaign, QueueItem
from engine.store.tables.recordings import Frame
from engine.store.tables.work import Job
from services.dashboard.pages import queue as queue_page
from services.dashboard.reasons import why


def items(page: str) -> list[str]:
    return re.findall('data-item="([0-9a-f-]+)"', page)


def token_of(page: str) -> str:
    return re.search('name="form_token" value="([0-9a-f]+)"', page).group(1)


def test_filters_stand_in_the_address(full_site):
    fleet = full_site.fleet
    client = full_site.visitor()
    ids = [str(i) for i in fleet.item_ids]
    assert items(client.get("/queue").text) == ids[:9], "what is queued, in the order of priority"
    assert items(client.get("/queue?state=all").text) == ids
    assert items(client.get("/queue?state=dropped").text) == ids[14:]
    assert items(client.get("/queue?state=all&arm=control").text) == [ids[0], ids[9]]
    assert items(client.get("/queue?state=all&campaign=night+lanes&head=lanes").text) == ids
    assert items(client.get("/queue?state=all&head=depth").text) == []
    assert "Nothing fits these filters" in client.get("/queue?campaign=none").text
    # The states' counts are of the rest of the filters.
    assert re.search(
        r'state=open[^>]*>open <span class="num" data-count="open">1</span>', client.get("/queue?arm=control").text
    )


def test_pages_follow_each_other_without_gap_or_double(full_site, monkeypatch):
    fleet = full_site.fleet
    monkeypatch.setattr(queue_page, "CARDS", 4)
    client = full_site.visitor()
    seen, address = [], "/queue?state=all"
    while address:
        page = client.get(address).text
        seen += items(page)
        more = re.search('href="([^"]+)" rel="next"', page)
        address = more and unquote(more.group(1).replace("&amp;", "&"))
        if len(seen) == 4:  # what goes to the front meanwhile doesn't move the rest
            client.post(f"/queue/{seen[2]}/front", data={"form_token": token_of(page)})
    assert seen == [str(i) for i in fleet.item_ids]
    assert client.get("/queue?after=nonsense").status_code == 422


def test_to_the_front_and_undone(full_site):
    fleet = full_site.fleet
    client = full_site.visitor()
    last = fleet.item_ids[8]
    page = client.get("/queue").text
    hx = {"HX-Request": "true"}
    done = client.post(f"/queue/{last}/front", data={"form_token": token_of(page)}, headers=hx)
    assert done.status_code == 200
    assert items(done.text) == [str(last)]
    assert "Now first in the queue" in done.text
    assert items(client.get("/queue").text)[0] == str(last)
    undo = re.search('name="priority" value="([^"]+)"', done.text).group(1)
    client.post(f"/queue/{last}/priority", data={"form_token": token_of(page), "priority": undo}, headers=hx)
    assert items(client.get("/queue").text)[-1] == str(last)


@pytest.mark.parametrize("priority", ["nan", "inf", "1e10", "high", ""])
def test_a_priority_is_a_number(full_site, priority):
    fleet = full_site.fleet
    client = full_site.visitor()
    page = client.get("/queue").text
    answer = client.post(
        f"/queue/{fleet.item_ids[0]}/priority", data={"form_token": token_of(page), "priority": priority}
    )
    assert answer.status_code == 422


def test_dropped_and_put_back_with_its_budget_and_an_audit(full_site):
    fleet = full_site.fleet
    client = full_site.visitor()
    item, hx = fleet.item_ids[1], {"HX-Request": "true"}
    token = token_of(client.get("/queue").text)

    def spent(session):
        return session.get_one(Campaign, fleet.campaign_id).spent

    with Session(full_site.engine) as session:
        before = spent(session)
    done = client.post(f"/queue/{item}/drop", data={"form_token": token, "reason": "blurred"}, headers=hx)
    assert f'hx-post="/queue/{item}/restore"' in done.text
    with Session(full_site.engine) as session:
        assert session.get_one(QueueItem, item).state == "dropped"
        assert spent(session) == before - 1
        entry = session.execute(select(AuditEntry).where(AuditEntry.act == "drop")).scalar_one()
        assert entry.details == {"reason": "blurred"}
        assert entry.actor.startswith("token:")
    assert client.post(f"/queue/{item}/restore", data={"form_token": token}, headers=hx).status_code == 200
    with Session(full_site.engine) as session:
        assert session.get_one(QueueItem, item).state == "queued"
        assert spent(session) == before
    again = client.post(f"/queue/{item}/restore", data={"form_token": token}, headers=hx)
    assert again.status_code == 409
    assert again.headers["hx-retarget"] == "#notice"
    assert "nothing to restore" in again.text


def test_putting_back_needs_budget(full_site):
    fleet = full_site.fleet
    client = full_site.visitor()
    with Session(full_site.engine) as session:
        campaign = session.get_one(Campaign, fleet.campaign_id)
        campaign.budget = campaign.spent
        session.commit()
    token = token_of(client.get("/queue").text)
    answer = client.post(f"/queue/{fleet.item_ids[14]}/restore", data={"form_token": token})
    assert answer.status_code == 409
    assert "whole budget" in answer.text


def test_an_open_item_is_dropped_too_and_a_labelled_one_is_not(full_site):
    fleet = full_site.fleet
    client = full_site.visitor()
    page = client.get("/queue?state=open").text
    assert 'href="http://labels.example:8080/projects/1/data?task=109"' in page
    assert page.count("data-drop>") == 2
    token = token_of(page)
    for item, status in ((fleet.item_ids[9], 303), (fleet.item_ids[11], 409)):
        assert client.post(f"/queue/{item}/drop", data={"form_token": token}).status_code == status
    with Session(full_site.engine) as session:
        assert [session.get_one(QueueItem, fleet.item_ids[n]).state for n in (9, 11)] == ["dropped", "labelled"]
        pushes = session.scalars(select(Job).where(Job.kind == "push", Job.state == "due")).all()
        assert len(pushes) == 1


def test_pictures_are_decoded_once_and_pinned_ones_come_by_a_signed_link(full_site):
    client = full_site.visitor()
    page = client.get("/queue?state=all").text
    address = re.search('src="(/frames/[^"]+/picture)"', page).group(1)
    first = client.get(address)
    assert first.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(first.content)).size == (320, 160)
    kept = [path for path in (full_site.settings.data_dir / "cache" / "pictures").rglob("*") if path.is_file()]
    assert [path.suffix for path in kept] == [".jpg"]
    assert client.get(address).content == first.content
    with Session(full_site.engine) as session:
        pinned = session.execute(select(Frame.id).where(Frame.picture_blob_id.is_not(None))).scalars().all()
        assert len(pinned) == len(re.findall('src="/media/', page))


def test_what_a_model_said_comes_in_a_form_that_can_be_drawn(full_site):
    fleet = full_site.fleet
    client = full_site.visitor()
    with Session(full_site.engine) as session:
        item = session.get_one(QueueItem, fleet.item_ids[0])
        frame, model = item.subject_id, item.model_version_id
    told = client.get(f"/frames/{frame}/predictions?model={model}").json()
    heads = {head["name"]: head for head in told["heads"]}
    assert list(heads) == ["driveable", "lanes", "objects", "signs", "depth"]
    assert told["model"] == 4
    assert sum(length for _, length in heads["driveable"]["value"]["runs"]) == 40 * 80
    assert heads["objects"]["value"]["objects"][0]["class"] == "car"
    depth = heads["depth"]
    assert depth["grid"]["size"] == [40, 80]
    assert 0 < depth["low"] < depth["high"] <= 70
    assert depth["unit"] == "m"
    assert 0 <= depth["quantile"] <= 1
    assert client.get(f"/frames/{fleet.clip_ids[0]}/predictions").status_code == 404
    assert full_site.client().get(f"/frames/{frame}/predictions").status_code == 303


def test_a_dead_job_is_tried_again(full_site):
    fleet = full_site.fleet
    client = full_site.visitor()
    page = client.get("/jobs?state=dead").text
    assert "the media gave 4 frames of 6" in page
    answer = client.post(
        f"/jobs/{fleet.dead_job_id}/retry", data={"form_token": token_of(page), "back": "/jobs?state=dead"}
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs?state=dead")
    with Session(full_site.engine) as session:
        assert session.get_one(Job, fleet.dead_job_id).state == "due"
    again = client.post(f"/jobs/{fleet.dead_job_id}/retry", data={"form_token": token_of(page)})
    assert again.status_code == 409


def card(**changes) -> Card:
    fields = dict.fromkeys(Card.__dataclass_fields__)
    return Card(**{**fields, "arm": "chosen", "reason": {}, **changes})


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (
            {"head": "lanes", "quantile": 0.978, "distance": 0.95, "triggers": []},
            "Lanes uncertainty above 97% of the reference; far from what’s labelled",
        ),
        ({"head": "lanes", "quantile": 0.999, "triggers": []}, "Lanes uncertainty above 99% of the reference"),
        (
            {"head": "lanes", "quantile": 1.0, "distance": 0.1},
            "Lanes uncertainty above all of the reference; close to what’s labelled",
        ),
        ({"triggers": [{"name": "hard_brake", "parameters": {}}]}, "Trigger hard brake"),
        ({}, "Chosen; no reason was recorded"),
    ],
)
def test_reasons_in_words(reason, sentence):
    assert why(card(reason=reason)).sentence == sentence


def test_a_control_says_how_likely_it_was():
    told = why(card(arm="control", inclusion_probability=0.0083, reason={"pool_size": 1412, "drawn": 2}))
    assert told.sentence.startswith("Random control, p = 0.8%")
    assert told.figures == "2 drawn from a pool of 1\N{NARROW NO-BREAK SPACE}412"
