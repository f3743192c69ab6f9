"""The simulated fleet posts to the engine's own API, over HTTP and a real database."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import uvicorn
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.stages.access import make_device
from engine.store.database import connect
from engine.store.projects import ensure_default
from engine.store.tables.recordings import Clip, Stream
from engine.store.unit_of_work import Database
from services.api.app import make_app
from services.settings import Settings
from services.simulation.drive import plan_drives
from services.simulation.fleet import Fleet
from services.uplink import ClipConflictError
from services.wiring import Undispatched


@dataclass(frozen=True)
class Uplink:
    """Where the API listens, a key that may send for every vehicle, and the database's URL."""

    url: str
    key: str
    database_url: str


@pytest.fixture
def uplink(database_url: str, data_dir: Path) -> Iterator[Uplink]:
    engine = connect(database_url)
    with Session(engine) as session:
        project_id = ensure_default(session).id
        session.commit()
    with Database(engine, Undispatched()).unit() as unit:
        _, key = make_device(unit, project_id, "simulated fleet", (), True, "test")
        unit.commit()
    engine.dispose()
    settings = Settings(data_dir=data_dir, database_url=database_url, signing_secret="a secret of the tests")
    server = uvicorn.Server(uvicorn.Config(make_app(settings), host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the API did not start"
        time.sleep(0.01)
    yield Uplink(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", key, database_url)
    server.should_exit = True
    thread.join(20)
    assert not thread.is_alive(), "the API did not stop"


def test_fleet_posts_replays_and_conflicts(uplink: Uplink) -> None:
    planned = plan_drives(71, 3, "boosted", clips=2, split="golden")
    with Fleet(uplink.url, uplink.key) as fleet:
        posted = list(fleet.post_drives(planned))
        assert [clip.replayed for clip in posted] == [False] * 6
        assert [(c.id, c.replayed) for c in fleet.post_drives(planned)] == [(c.id, True) for c in posted]
        with pytest.raises(ClipConflictError, match="give the new recording an external id of its own"):
            fleet.post_clip(planned[0], planned[0].clips[0], model_version="another")
    headers = {"Authorization": f"Bearer {uplink.key}"}
    with httpx.Client(base_url=uplink.url, headers=headers, timeout=30, trust_env=False) as client:
        clip = client.get(f"/v1/clips/{posted[3].id}").json()
    plan, drive = posted[3].plan, posted[3].drive
    assert (clip["external_id"], clip["vehicle"], clip["drive"]) == (plan.external_id, drive.vehicle, drive.external_id)
    assert (clip["split"], clip["split_group"], clip["clock_suspect"]) == ("golden", drive.external_id, False)
    assert clip["streams"][0]["pts"] == list(plan.pts)
    assert clip["streams"][0]["time_base"] == [1, 90_000]
    assert clip["tags"] == drive.tags
    engine = connect(uplink.database_url)
    with Session(engine) as session:
        assert len(session.scalars(select(Clip)).all()) == 6
        assert len(session.scalars(select(Stream)).all()) == 6
    engine.dispose()
