"""A line with scored frames, a queue of them, and a real Label Studio to have them labelled in."""

from __future__ import annotations

import io
import secrets
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.adapters.blobs import LocalBlobStore
from engine.adapters.label_studio.client import LabelStudioBridge
from engine.adapters.label_studio.results import to_results
from engine.adapters.redaction import NoRedaction
from engine.adapters.video.pool import MediaPool
from engine.adapters.video.reader import ChildFrameReader
from engine.domain.answers import Answer, encode_runs
from engine.domain.ids import frame_id
from engine.domain.ontology import Head, Kind, LabelTool, Ontology
from engine.jobs import ledger
from engine.jobs.perform import perform
from engine.ports import LabelBridge, Redactor
from engine.stages.accept import accept
from engine.stages.collect import collect
from engine.stages.push import lock_name, push
from engine.stages.reconcile import reconcile
from engine.store import lines, recordings
from engine.store.blobs import register
from engine.store.database import connect
from engine.store.predictions import MEDIA_TYPE, Prediction, write
from engine.store.projects import ensure_default
from engine.store.tables.labels import Annotation, Campaign, Label, LabelTask, QueueItem, Selection
from engine.store.tables.metadata import new_id
from engine.store.tables.models import ModelLine, Scoring
from engine.store.tables.recordings import Stream
from engine.store.tables.work import Job
from engine.store.unit_of_work import Database
from services.local.child import Child
from services.settings import Settings
from services.workers.labeling import PROJECT_PREFIX

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT = 96, 64
HEADS = (
    Head("objects", Kind.BOXES, ("car", "truck")),
    Head("lanes", Kind.POLYLINES, ("solid", "dashed")),
    Head("driveable", Kind.MASK, ("road",)),
    Head("weather", Kind.CHOICE, ("clear", "fog")),
    Head("depth", Kind.DENSE_SCALAR, label_tool=LabelTool.MACHINE, unit="m"),
)
PERSON_HEADS = [head.name for head in HEADS if head.label_tool is LabelTool.PERSON]
START_NS = 1_790_000_000_000_000_000


def road(top: int = 40) -> Answer:
    cells = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    cells[top:, 20:70] = 1
    return Answer(Kind.MASK, {"size": [HEIGHT, WIDTH], "runs": encode_runs(cells.tobytes())})


def car(x: float = 0.1, name: str = "car") -> Answer:
    return Answer(Kind.BOXES, {"objects": [{"id": "o1", "class": name, "box": [x, 0.2, x + 0.4, 0.75]}]})


ANSWERS: Mapping[str, Answer] = {
    "objects": car(),
    "lanes": Answer(Kind.POLYLINES, {"lines": [{"id": "l1", "class": "solid", "points": [[0.1, 1.0], [0.4, 0.5]]}]}),
    "driveable": road(),
    "weather": Answer(Kind.CHOICE, {"choice": "fog"}),
}


def video(frames: int, seed: int = 0) -> bytes:
    """A small H.264 MP4 whose PTS are 0, 100, 200, … ms."""
    out, noise = io.BytesIO(), np.random.default_rng(seed)
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for _ in range(frames):
            picture = noise.integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return out.getvalue()


class Unheard:
    """A dispatcher whose hints nobody hears."""

    def dispatch(self, job_kind: str, job_id: str, priority: int) -> None:
        return None


@dataclass
class Desk:
    """The rows that labelling needs, and the jobs of labelling done by hand."""

    database: Database
    blobs: LocalBlobStore
    reader: ChildFrameReader
    project_id: uuid.UUID
    ontology: Ontology
    ontology_id: uuid.UUID
    line_id: uuid.UUID
    model_id: uuid.UUID
    clip_id: uuid.UUID
    frames: list[uuid.UUID]
    redactor: Redactor = field(default_factory=NoRedaction)

    def campaign(self, name: str = "all", heads: Sequence[str] = tuple(PERSON_HEADS), **settings: Any) -> uuid.UUID:
        """The selection of a new campaign."""
        with self.database.unit() as unit:
            campaign = Campaign(
                id=new_id(), project_id=self.project_id, name=name, line_id=self.line_id, state="active", triggers=[],
                trigger_sha256="t", heads=list(heads), budget=1000, batch_size=100, control_fraction=0.1, priority=0,
                seed=0, settings=settings,
            )  # fmt: skip
            unit.session.add(campaign)
            unit.session.flush()
            selection = Selection(
                id=new_id(), project_id=self.project_id, campaign_id=campaign.id, model_version_id=self.model_id,
                pool_size=100, candidates=100, seed=0,
            )  # fmt: skip
            unit.session.add(selection)
            unit.commit()
        return selection.id

    def queue(self, selection_id: uuid.UUID, frames: Sequence[int], arm: str = "chosen") -> list[uuid.UUID]:
        """Queue items for these frames (numbers), the first with the highest priority."""
        with self.database.unit() as unit:
            selection = unit.session.get_one(Selection, selection_id)
            campaign = unit.session.get_one(Campaign, selection.campaign_id)
            items = [
                QueueItem(
                    id=new_id(), project_id=self.project_id, campaign_id=campaign.id, selection_id=selection.id,
                    subject_id=self.frames[number], ontology_id=self.ontology_id, model_version_id=self.model_id,
                    trigger_sha256="t", arm=arm, inclusion_probability=0.1 if arm == "control" else None, seed=0,
                    reason={"head": "objects", "quantile": 0.98}, heads=campaign.heads, priority=float(-place),
                )
                for place, number in enumerate(frames)
            ]  # fmt: skip
            unit.session.add_all(items)
            unit.commit()
        return [item.id for item in items]

    # --- jobs, as a worker does them ---

    def enqueue(self, kind: str, subject_id: uuid.UUID, **payload: Any) -> uuid.UUID:
        with self.database.unit() as unit:
            job_id = ledger.enqueue(
                unit, kind=kind, project_id=self.project_id, subject_id=subject_id, dedupe_key=str(uuid.uuid4()),
                payload=payload,
            )  # fmt: skip
            unit.commit()
        assert job_id is not None
        return job_id

    def push(self, bridge: LabelBridge, window: int = 50) -> Job:
        def work(lease: ledger.Lease) -> object:
            return push(self.database, self.blobs, self.reader, self.redactor, bridge, sign, lease, window)

        return self._do("push", self.ontology_id, work)

    def collect(self, bridge: LabelBridge) -> Job:
        """Collect, and accept what was collected."""
        job = self._do("collect", self.ontology_id, lambda lease: collect(self.database, bridge, lease))
        self.accept_due()
        return job

    def reconcile(self, bridge: LabelBridge) -> Job:
        name = lock_name(self.ontology_id)
        return self._do("collect", self.ontology_id, lambda lease: reconcile(self.database, bridge, lease, name))

    def accept(self, task_id: uuid.UUID) -> Job:
        return self._do("accept", task_id, lambda lease: accept(self.database, lease))

    def accept_due(self) -> None:
        while perform(self.database, "accept", "test", lambda lease: accept(self.database, lease)):
            pass

    def _do(self, kind: str, subject_id: uuid.UUID, work: Callable[[ledger.Lease], object]) -> Job:
        job_id = self.enqueue(kind, subject_id)
        with self.database.unit() as unit:
            for job in unit.session.scalars(select(Job).where(Job.kind == kind, Job.state == "due", Job.id != job_id)):
                ledger.cancel(unit, job.id, "only one at a time in a test")
            unit.commit()
        perform(self.database, kind, "test", work)
        with self.database.read() as session:
            return session.get_one(Job, job_id)

    # --- what there is ---

    def read(self) -> Session:
        return Session(self.database.engine, expire_on_commit=False)

    def tasks(self, *states: str) -> list[LabelTask]:
        with self.read() as session:
            query = select(LabelTask).order_by(LabelTask.id)
            return list(session.scalars(query.where(LabelTask.state.in_(states)) if states else query))

    def item(self, item_id: uuid.UUID) -> QueueItem:
        with self.read() as session:
            return session.get_one(QueueItem, item_id)

    def items(self) -> list[QueueItem]:
        with self.read() as session:
            return list(session.scalars(select(QueueItem).order_by(QueueItem.priority.desc(), QueueItem.id)))

    def labels(self, current: bool = True) -> list[Label]:
        with self.read() as session:
            query = select(Label).order_by(Label.subject_id, Label.head, Label.revision)
            return list(session.scalars(query.where(Label.superseded_by_id.is_(None)) if current else query))

    def annotations(self) -> list[Annotation]:
        with self.read() as session:
            return list(session.scalars(select(Annotation).order_by(Annotation.tool_annotation, Annotation.revision)))


def sign(sha256: str) -> str:
    """A link that no test follows."""
    return f"http://127.0.0.1:9/media/{sha256}"


@pytest.fixture
def desk(database_url: str, data_dir: Path) -> Iterator[Desk]:
    """A line with one clip of twelve scored frames, and nothing queued yet."""
    engine = connect(database_url, pool_size=10)
    pool = MediaPool()
    yield make_desk(Database(engine, Unheard()), LocalBlobStore(data_dir / "blobs"), ChildFrameReader(pool))
    pool.close()
    engine.dispose()


@dataclass(frozen=True)
class Footage:
    """A clip to be labelled, and what a model said of every frame of it."""

    drive: str = "d-1"
    clip: str = "d-1-c01"
    media: bytes = field(default_factory=lambda: video(12))
    pts: Sequence[int] = tuple(range(0, 12 * 1024, 1024))
    time_base: int = 10240
    size: tuple[int, int] = (HEIGHT, WIDTH)
    heads: Sequence[Head] = HEADS
    predicted: Mapping[str, Answer] = field(default_factory=lambda: ANSWERS)


def make_desk(
    database: Database, blobs: LocalBlobStore, reader: ChildFrameReader, footage: Footage | None = None
) -> Desk:
    """The rows of an ontology of its own, a line, and one scored clip."""
    seen = footage or Footage()
    ontology = Ontology(f"driving-{secrets.token_hex(4)}", 1, tuple(seen.heads))
    pts = list(seen.pts)
    media = blobs.put(seen.media)
    with database.unit() as unit:
        session = unit.session
        project = ensure_default(session)
        ontology_id = lines.add_ontology(session, project.id, ontology).id
        line = ModelLine(id=new_id(), project_id=project.id, name="front", ontology_id=ontology_id, settings={})
        session.add(line)
        vehicle = recordings.ensure_vehicle(session, project.id, "sim-07", "sim")
        group = recordings.ensure_split_group(session, project.id, seen.drive, "pool", "default")
        drive = recordings.ensure_drive(session, vehicle, seen.drive, group)
        clip, _ = recordings.add_clip(
            session,
            {
                "id": new_id(), "project_id": project.id, "vehicle_id": vehicle.id, "drive_id": drive.id,
                "split": "pool", "external_id": seen.clip, "manifest_sha256": "m", "manifest": {}, "state": "scored",
                "start_ns": START_NS, "end_ns": START_NS + 10**9, "clock_source": "gps", "clock_suspect": False,
                "licence": "CC0", "allowed_purposes": ["training"], "tags": {}, "telemetry": [], "events": [],
            },
        )  # fmt: skip
        blob = register(session, project.id, media, "video/mp4")
        stream = Stream(
            id=new_id(), project_id=project.id, clip_id=clip.id, name="front", kind="camera", blob_id=blob.id,
            codec="h264", width=seen.size[1], height=seen.size[0], time_base_num=1, time_base_den=seen.time_base,
            pts=pts, start_offset_ns=0,
        )  # fmt: skip
        session.add(stream)
        session.flush()
        ids = recordings.ensure_frames(session, clip, stream, pts)
        weights = register(session, project.id, blobs.put(b"weights"), "application/octet-stream")
        model = lines.add_model(
            session, line, origin="registered", run_id=None, heads=[head.name for head in seen.heads],
            weights_blob_id=weights.id, weights_sha256="w", config={}, created_by="test",
        )  # fmt: skip
        stored = blobs.put(write(Prediction(str(i), h, a, 0.5) for i in ids for h, a in sorted(seen.predicted.items())))
        session.add(
            Scoring(
                id=new_id(), project_id=project.id, clip_id=clip.id, model_version_id=model.id,
                predictions_blob_id=register(session, project.id, stored, MEDIA_TYPE).id, seconds=0.1,
            )
        )  # fmt: skip
        unit.commit()
    assert ids[0] == frame_id(clip.id, "front", 0)
    return Desk(database, blobs, reader, project.id, ontology, ontology_id, line.id, model.id, clip.id, ids)


class Tool:
    """Label Studio as people use it, and our bridge to it."""

    def __init__(self, url: str, token: str, prefix: str) -> None:
        self.url, self.token, self.prefix = url, token, prefix
        self.bridge = LabelStudioBridge(url, token, prefix)
        self.rest = httpx.Client(base_url=url, headers={"Authorization": f"Token {token}"}, timeout=60, trust_env=False)

    def close(self) -> None:
        self.bridge.close()
        self.rest.close()

    def tasks(self, ontology: Ontology) -> list[dict[str, Any]]:
        """All tasks of the ontology's project, by id."""
        number = self.bridge.ensure_project(ontology)
        query = {"project": number, "page_size": 200, "fields": "all", "resolve_uri": "false"}
        answer = self.rest.get("/api/tasks/", params=query)
        answer.raise_for_status()
        return sorted(answer.json()["tasks"], key=lambda task: task["id"])

    def annotate(self, task: int, results: list[dict[str, Any]], **more: Any) -> int:
        answer = self.rest.post(f"/api/tasks/{task}/annotations/", json={"result": results, "lead_time": 12.5, **more})
        answer.raise_for_status()
        return int(answer.json()["id"])

    def say(self, task: int, ontology: Ontology, answers: Mapping[str, Answer], **more: Any) -> int:
        """Submit these answers, as drawn."""
        return self.annotate(task, to_results(ontology, list(answers), answers, WIDTH, HEIGHT), **more)


@pytest.fixture
def tool(label_studio: Any) -> Iterator[Tool]:
    """The session's Label Studio with projects of this test's own."""
    made = Tool(label_studio.url, label_studio.token, f"t {secrets.token_hex(4)}")
    yield made
    made.close()


class LabelingWorkers:
    """Real labeling workers, as `longtail worker labeling` starts them, all killed at the end."""

    def __init__(self, database_url: str, redis_url: str, data_dir: Path) -> None:
        self._values = {
            "data_dir": data_dir, "database_url": database_url, "redis_url": redis_url, "poll_seconds": 0.5,
            "tick_seconds": 0.5, "lease_seconds": 3.0, "signing_secret": "a secret of the tests",
        }  # fmt: skip
        self._logs = data_dir / "logs"
        self.running: list[Child] = []
        self.started = 0

    def start(self, url: str, token: str, **changes: Any) -> Child:
        settings = Settings(**{**self._values, "label_studio_url": url, "label_studio_token": token, **changes})
        self.started += 1
        command = [sys.executable, "-m", "services.cli", "worker", "labeling"]
        log = self._logs / f"labeling-{self.started}.log"
        self.running.append(Child(command, settings.child_environment(), log, folder=ROOT))
        return self.running[-1]

    def kill_all(self) -> None:
        while self.running:
            self.running.pop().stop(grace_s=0)


@pytest.fixture
def labeling_workers(database_url: str, redis_url: str, data_dir: Path) -> Iterator[LabelingWorkers]:
    workers = LabelingWorkers(database_url, redis_url, data_dir)
    yield workers
    workers.kill_all()


@pytest.fixture
def shared_tool(label_studio: Any) -> Iterator[Tool]:
    """Label Studio with the projects that a real worker makes: they are told apart by the ontology's name."""
    made = Tool(label_studio.url, label_studio.token, PROJECT_PREFIX)
    yield made
    made.close()


def eventually(so: Callable[[], bool], timeout_s: float, what: str) -> float:
    """Seconds until it is so. Fails after `timeout_s`."""
    start = time.monotonic()
    while not so():
        assert time.monotonic() - start < timeout_s, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.2)
    return time.monotonic() - start
