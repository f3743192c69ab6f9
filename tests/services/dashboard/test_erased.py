"""What pages show of an erased clip, and that a picture made while it went does not stay."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from sqlalchemy import text

from engine.adapters.blobs import LocalBlobStore
from engine.adapters.local_copies import DataFolderCopies
from engine.domain.erasure import Target
from engine.jobs import ledger
from engine.jobs.perform import WorkPostponed
from engine.stages.erase import erase
from engine.stages.erasure_request import request_erasure
from engine.store.unit_of_work import Database
from services.dashboard import pictures
from services.wiring import Undispatched


class Forgetful:
    """A label tool that has no task of ours."""

    def tasks_by_key(self, tool_project: int, keys: Any) -> dict[str, list[Any]]:
        return {}

    def delete_tasks(self, task_ids: Any) -> None:
        assert task_ids == []


def erase_clip(site: Any, clip_id: uuid.UUID) -> None:
    database = Database(site.engine, Undispatched())
    with database.unit() as unit:
        request_erasure(unit, site.fleet.project_id, Target(clip=clip_id), "the owner asked", "token:ada")
        unit.session.execute(text("UPDATE jobs SET state = 'cancelled' WHERE state = 'due' AND kind <> 'erase'"))
        unit.commit()
    (lease,) = ledger.claim(database, "erase", "tester")
    # The fleet's frozen sets are rows without manifests: nothing is to be rewritten there.
    with database.unit() as unit:
        unit.session.execute(text("DELETE FROM dataset_subjects"))
        unit.session.execute(text("DELETE FROM golden_subjects"))
        unit.commit()
    blobs = LocalBlobStore(site.settings.data_dir / "blobs-of-this-test")
    tool: Any = Forgetful()
    try:
        erase(database, blobs, tool, DataFolderCopies(site.settings.data_dir), lease, 0)
    except WorkPostponed as postponed:
        pytest.fail(str(postponed))


def test_the_page_of_an_erased_clip_says_so(full_site: Any) -> None:
    clip_id = full_site.fleet.clip_ids[0]
    client = full_site.visitor()
    before = client.get(f"/clips/{clip_id}")
    assert before.status_code == 200
    assert "d-0000-c00" in before.text
    erase_clip(full_site, clip_id)
    page = client.get(f"/clips/{clip_id}")
    assert page.status_code == 410
    assert "This clip was erased" in page.text
    assert "token:ada" in page.text
    assert "d-0000-c00" not in page.text
    assert "d-0000-c00" not in client.get("/clips").text
    assert "d-0000-c00" not in client.get("/queue?state=all").text
    for address in ("/", "/queue", "/datasets", "/models", "/jobs"):
        assert client.get(address).status_code == 200


def test_a_held_clip_says_so(full_site: Any) -> None:
    clip_id = full_site.fleet.clip_ids[0]
    with Database(full_site.engine, Undispatched()).unit() as unit:
        insert = "INSERT INTO legal_holds (id, project_id, scope_kind, scope_id, reason, placed_by) "
        insert += "SELECT gen_random_uuid(), project_id, 'drive', drive_id, 'case 12', 'me' FROM clips WHERE id = :c"
        unit.session.execute(text(insert), {"c": clip_id})
        unit.commit()
    assert "legal hold" in full_site.visitor().get(f"/clips/{clip_id}").text
    assert "legal hold" not in full_site.visitor().get(f"/clips/{full_site.fleet.clip_ids[1]}").text


def test_a_picture_that_was_being_made_does_not_stay(full_site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clip_id = full_site.fleet.clip_ids[0]
    with full_site.engine.connect() as connection:
        frame = connection.execute(text("SELECT id FROM frames WHERE clip_id = :c LIMIT 1"), {"c": clip_id}).scalar()
    client = full_site.visitor()
    cache = full_site.settings.data_dir / "cache"
    assert client.get(f"/frames/{frame}/picture").status_code == 200
    assert [path for path in cache.rglob("*") if path.is_file()]
    really = pictures._jpeg

    def slow(picture: Any, width: int) -> bytes:
        content = really(picture, width)
        erase_clip(full_site, clip_id)
        return content

    monkeypatch.setattr(pictures, "_jpeg", slow)
    answer = client.get(f"/frames/{frame}/picture?large=true")
    assert answer.status_code == 404
    assert [path for path in cache.rglob("*") if path.is_file()] == []
