"""Ingest, called as the API calls it, on a real database, blob store and decoder."""

from __future__ import annotations

import io
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from engine.adapters.blobs import BlobWriter, LocalBlobStore
from engine.adapters.video.pool import MediaPool
from engine.adapters.video.probe import ChildMediaProbe
from engine.domain.access import Principal
from engine.domain.manifest import ClipManifest, StreamManifest
from engine.domain.refusals import Invalid
from engine.stages.ingest import ingest
from engine.store.lines import get_line
from engine.store.projects import ensure_default
from engine.store.tables.metadata import new_id
from engine.store.tables.models import ModelLine, ModelVersion, OntologyVersion
from engine.store.tables.recordings import Blob, Clip
from engine.store.tables.work import Job
from engine.store.unit_of_work import Database

START_NS = 1_790_000_000_000_000_000


class Recorder:
    """A dispatcher that keeps what it was told, and whether the job could be seen from outside by then."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.told: list[tuple[str, bool]] = []

    def dispatch(self, job_kind: str, job_id: str, priority: int) -> None:
        with Session(self.engine) as session:
            self.told.append((job_kind, session.get(Job, uuid.UUID(job_id)) is not None))


class Fleet:
    """Sends clips straight into the stage."""

    def __init__(self, engine: Engine, folder: Path, probe: ChildMediaProbe) -> None:
        self.engine, self.probe = engine, probe
        self.dispatcher = Recorder(engine)
        self.database = Database(engine, self.dispatcher)
        self.blobs = LocalBlobStore(folder)
        with self.database.unit() as unit:
            self.project_id = ensure_default(unit.session).id
            unit.commit()
        self.principal = Principal("token", new_id(), "tester", self.project_id, frozenset({"clips:write"}))

    def send(self, clip: str, seed: int, key: str | None = None, **changes: Any) -> uuid.UUID:
        with self.blobs.begin() as file:
            file.write(video(seed))
            return self._ingest(clip, file, key, changes)

    def _ingest(self, clip: str, file: BlobWriter, key: str | None, changes: dict[str, Any]) -> uuid.UUID:
        streams = [{"name": "front"}]
        document = {"external_id": clip, "streams": streams, **changes}
        manifest = ClipManifest(
            vehicle="sim-07",
            platform="sim",
            drive=changes.get("drive", "d-1"),
            split_group=changes.get("drive", "d-1"),
            split=changes.get("split"),
            external_id=clip,
            start_ns=START_NS,
            clock_source="gps",
            clock_error_ns=None,
            streams=(StreamManifest("front", "camera", None, 0, None),),
            licence="CC0-1.0",
            allowed_purposes=("training",),
            document=document,
        )
        return ingest(self.database, self.probe, self.principal, manifest, {"front": file}, START_NS, key).clip_id

    def line(self, name: str = "car") -> tuple[uuid.UUID, uuid.UUID]:
        """A line and its champion."""
        with self.database.unit() as unit:
            shared = {"project_id": self.project_id}
            ontology = OntologyVersion(id=new_id(), name=name, version=1, digest="", document={}, **shared)
            line = ModelLine(id=new_id(), name=name, ontology_id=ontology.id, settings={}, **shared)
            unit.session.add(ontology)
            unit.session.flush()
            unit.session.add(line)
            unit.session.flush()
            line.champion_id = self.version(unit.session, line, 1)
            unit.commit()
            return line.id, line.champion_id

    def version(self, session: Session, line: ModelLine, number: int) -> uuid.UUID:
        model = ModelVersion(
            id=new_id(),
            project_id=self.project_id,
            line_id=line.id,
            number=number,
            origin="registered",
            ontology_id=line.ontology_id,
            heads=[],
            weights_sha256="",
            created_by="test",
        )
        session.add(model)
        session.flush()
        return model.id

    def jobs(self) -> list[Job]:
        with self.database.read() as session:
            return list(session.scalars(select(Job).order_by(Job.id)))

    def clips(self) -> list[Clip]:
        with self.database.read() as session:
            return list(session.scalars(select(Clip).order_by(Clip.id)))


def video(seed: int) -> bytes:
    out = io.BytesIO()
    noise = np.random.default_rng(seed)
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(3):
            picture = noise.integers(0, 255, (48, 64, 3), dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return out.getvalue()


@pytest.fixture(scope="module")
def probe() -> Iterator[ChildMediaProbe]:
    pool = MediaPool(size=1)
    yield ChildMediaProbe(pool)
    pool.close()


@pytest.fixture
def fleet(database_engine: Engine, tmp_path: Path, probe: ChildMediaProbe) -> Fleet:
    return Fleet(database_engine, tmp_path / "blobs", probe)


def test_every_champion_is_to_score_the_clip_and_is_told_after_the_commit(fleet: Fleet) -> None:
    first, second = fleet.line("car"), fleet.line("bus")
    clip = fleet.send("c-1", 1)
    fleet.send("c-1", 1)
    jobs = fleet.jobs()
    assert {job.dedupe_key for job in jobs} == {f"score:{clip}:{first[1]}", f"score:{clip}:{second[1]}"}
    assert all(job.kind == "score" and job.subject_id == clip and job.state == "due" for job in jobs)
    assert {(job.payload["line_id"], job.payload["model_version_id"]) for job in jobs} == {
        (str(line), str(champion)) for line, champion in (first, second)
    }
    assert fleet.dispatcher.told == [("score", True), ("score", True)]


def test_golden_is_never_scored(fleet: Fleet) -> None:
    fleet.line()
    fleet.send("c-1", 1, split="golden")
    assert [clip.split for clip in fleet.clips()] == ["golden"]
    assert fleet.jobs() == []


def test_a_clip_that_meets_a_promotion_is_scored_by_the_new_champion(fleet: Fleet) -> None:
    line_id, old = fleet.line()
    with fleet.database.unit() as unit:
        line = get_line(unit.session, line_id, lock=True)
        sender = threading.Thread(target=fleet.send, args=("c-1", 1))
        sender.start()
        time.sleep(0.5)
        assert fleet.clips() == [], "the clip waits for the promotion"
        line.champion_id = fleet.version(unit.session, line, 2)
        unit.commit()
    sender.join(30)
    (job,) = fleet.jobs()
    assert job.payload["model_version_id"] == str(line.champion_id) != str(old)


def test_one_idempotency_key_for_two_clips_at_once_keeps_one_of_them(fleet: Fleet) -> None:
    outcomes: list[object] = []

    def send(number: int) -> None:
        try:
            outcomes.append(fleet.send(f"c-{number}", number, key="same"))
        except Invalid as refused:
            outcomes.append(refused.code)

    senders = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(60)
    assert sorted(str(outcome) for outcome in outcomes)[-3:] == ["idempotency-key-reused"] * 3
    (clip,) = fleet.clips()
    assert clip.id in outcomes


def test_the_blob_is_durable_before_its_row_and_nothing_is_kept_of_what_is_refused(fleet: Fleet) -> None:
    fleet.send("c-1", 1)
    with fleet.database.read() as session:
        stored = session.scalars(select(Blob)).one()
    assert fleet.blobs.read(str(stored.sha256)) == video(1)
    with fleet.blobs.begin() as file:
        file.write(video(2)[:-700])
        with pytest.raises(Invalid, match="front"):
            fleet._ingest("c-2", file, None, {})
    assert not fleet.blobs.exists(file.sha256)
