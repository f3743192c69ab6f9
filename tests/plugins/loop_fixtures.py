"""A model line with real clips, labels, weights and jobs: what every stage of the loop stands on."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from road_scenes import HEIGHT, WIDTH, Scene, ontology
from sqlalchemy import ColumnElement, func, select, text

from engine.adapters.blobs import LocalBlobStore
from engine.adapters.video.pool import MediaPool
from engine.adapters.video.probe import ChildMediaProbe
from engine.adapters.video.reader import ChildFrameReader
from engine.domain.access import ADMIN, Principal
from engine.domain.answers import Answer
from engine.domain.ontology import Head, Ontology
from engine.jobs import ledger
from engine.ports import Scorer, TrainedModel, Trainer
from engine.stages.campaign import CampaignRequest, make_campaign
from engine.stages.freeze import Frozen, freeze_dataset, freeze_golden
from engine.stages.import_labels import LabelImport, import_labels
from engine.stages.ingest import ingest
from engine.stages.judge import judge
from engine.stages.promote import Moved, promote
from engine.stages.score import score
from engine.stages.select import Selected, select_batch
from engine.stages.train import RunRequest, start_run, train
from engine.store.blobs import register
from engine.store.database import connect
from engine.store.lines import add_model, add_ontology
from engine.store.projects import ensure_default
from engine.store.tables.metadata import Table, new_id
from engine.store.tables.models import GateReport, ModelLine, ModelVersion, Run
from engine.store.tables.recordings import Clip, Stream
from engine.store.tables.work import Job
from engine.store.unit_of_work import Database
from services.api.schemas.manifest import ManifestIn
from services.wiring import Undispatched

Row = TypeVar("Row", bound=Table)

START_NS = 1_750_000_000_000_000_000
STREAM = "front"

TRAINING: dict[str, Any] = {
    "backbone": "shufflenet_v2_x0_5",
    "height": HEIGHT,
    "width": WIDTH,
    "batch_size": 4,
    "learning_rate": 1e-2,
    "steps_scratch": 4,
    "steps_warm": 4,
    "checkpoint_every": 2,
    "threads": 1,
    "neck_width": 16,
    "neck_layers": 1,
    "head_width": 16,
}
SETTINGS: dict[str, Any] = {
    "training": TRAINING,
    "scoring": {"every_s": 0.5},
    "gate": {"min_groups": 6, "resamples": 400},
}


@dataclass
class Loop:
    """A line and its parts. Times of clips follow from their numbers."""

    database: Database
    blobs: LocalBlobStore
    probe: ChildMediaProbe
    reader: ChildFrameReader
    project_id: uuid.UUID
    line_id: uuid.UUID
    ontology: Ontology
    folder: Path
    scenes: dict[uuid.UUID, Scene] = field(default_factory=dict)

    # --- the fleet ---

    @property
    def principal(self) -> Principal:
        return Principal("token", uuid.UUID(int=1), "fleet", self.project_id, frozenset({ADMIN}))

    def add_clip(
        self,
        seed: int,
        split: str = "pool",
        *,
        number: int = 0,
        frames: int = 6,
        vehicle: str | None = None,
        purposes: Sequence[str] = ("training", "evaluation"),
        tags: Mapping[str, str] | None = None,
        events: Sequence[Mapping[str, Any]] = (),
    ) -> uuid.UUID:
        """Ingest clip `number` of the drive that this seed draws."""
        scene = Scene(seed, number * 10_000)
        film = self.folder / f"{split}-{seed}-{number}.mp4"
        scene.film(film, frames)
        document = {
            "vehicle": {"external_id": vehicle or f"v{seed % 3}", "platform": "sim"},
            "drive": {"external_id": f"{split}-{seed}", "split_group": f"{split}-{seed}", "split": split},
            "external_id": f"{split}-{seed}-{number}",
            "start_ns": START_NS + (seed * 1000 + number * 30) * 1_000_000_000,
            "clock_source": "gps",
            "streams": [{"name": STREAM, "kind": "camera"}],
            "events": list(events),
            "tags": {"time_of_day": "night" if scene.night else "day", **(tags or {})},
            "licence": "CC0-1.0",
            "allowed_purposes": list(purposes),
        }
        with self.blobs.begin() as writer:
            writer.write(film.read_bytes())
            taken = ingest(
                self.database,
                self.probe,
                self.principal,
                ManifestIn.model_validate(document).to_domain(),
                {STREAM: writer},
                now_ns=START_NS,
            )
        film.unlink()
        self.scenes[taken.clip_id] = scene
        return taken.clip_id

    def pts(self, clip_id: uuid.UUID) -> list[int]:
        with self.database.read() as session:
            return list(session.scalars(select(Stream).where(Stream.clip_id == clip_id)).one().pts)

    def label(
        self,
        clip_id: uuid.UUID,
        frames: Sequence[int] = (0, 4),
        heads: Sequence[str] | None = None,
        *,
        source: str = "simulator",
        answers: Mapping[str, Answer] | None = None,
    ) -> tuple[uuid.UUID, ...]:
        """Import the truth of these frames (by their place in the clip), or `answers` in its stead."""
        pts = self.pts(clip_id)
        labels = []
        for index in frames:
            truth = {**self.scenes[clip_id].answers(pts[index]), **(answers or {})}
            for head in heads or [head.name for head in self.ontology.heads]:
                labels.append(LabelImport(clip_id, STREAM, pts[index], head, truth[head].value, truth[head].array))
        name, version = self.ontology.name, self.ontology.version
        return import_labels(self.database, self.blobs, self.principal, name, version, source, labels).label_ids

    def labelled_drives(self, seeds: Sequence[int], split: str = "pool") -> list[uuid.UUID]:
        """A clip of each of these drives, two of its frames labelled."""
        clips = [self.add_clip(seed, split) for seed in seeds]
        for clip in clips:
            self.label(clip)
        return clips

    # --- jobs ---

    def claim(self, kind: str) -> ledger.Lease:
        """The next due job of this kind, which there must be."""
        (lease,) = ledger.claim(self.database, kind, "tester", oldest_first=False)
        return lease

    def enqueue(self, kind: str, subject_id: uuid.UUID, payload: Mapping[str, Any] | None = None) -> uuid.UUID:
        with self.database.unit() as unit:
            job_id = ledger.enqueue(
                unit,
                kind=kind,
                project_id=self.project_id,
                subject_id=subject_id,
                dedupe_key=f"test:{uuid.uuid4()}",
                payload=payload,
                priority=1000,  # before what the stages themselves made due
            )
            unit.commit()
        assert job_id is not None
        return job_id

    def jobs(self, kind: str, *states: str) -> list[Job]:
        with self.database.read() as session:
            query = select(Job).where(Job.kind == kind).order_by(Job.id)
            return list(session.scalars(query.where(Job.state.in_(states)) if states else query))

    def take_away(self, lease: ledger.Lease) -> ledger.Lease:
        """What happens to a worker that fell silent: another one has the job now, as its next attempt.

        In one statement: a heartbeat could come between making the lease run out and a sweep.
        """
        taken_back = (
            "UPDATE jobs SET state = 'due', run_after = now(), lease_owner = NULL, lease_until = NULL, "
            "lease_token = NULL WHERE id = :id AND state = 'leased'"
        )
        with self.database.unit() as unit:
            unit.session.execute(text(taken_back), {"id": lease.job_id})
            unit.commit()
        (other,) = ledger.claim(self.database, lease.kind, "another", job_id=lease.job_id)
        return other

    # --- stages ---

    def freeze(self) -> Frozen:
        return freeze_dataset(self.database, self.blobs, self.reader, self.line_id)

    def freeze_golden(self, name: str = "golden") -> Frozen:
        return freeze_golden(self.database, self.blobs, self.reader, self.line_id, name)

    def start_run(self, dataset_id: uuid.UUID, seed: int = 1, **request: Any) -> uuid.UUID:
        with self.database.unit() as unit:
            run = start_run(
                unit, RunRequest(self.line_id, dataset_id, seed, request.pop("target_heads", ["road"]), **request)
            )
            unit.commit()
        return run

    def train(self, trainer: Trainer, lease: ledger.Lease | None = None) -> uuid.UUID | None:
        lease = lease or self.claim("train")
        folder = self.folder / "runs" / str(lease.subject_id)
        folder.mkdir(parents=True, exist_ok=True)
        return train(self.database, self.blobs, trainer, lease, folder)

    def register(
        self,
        model: TrainedModel,
        *,
        run_id: uuid.UUID | None = None,
        heads: Sequence[str] | None = None,
        judged: bool = False,
    ) -> uuid.UUID:
        """A version of the line with these weights. `judged` gives it a reference, as its first judgement would."""
        stored = self.blobs.put(model.files.weights.read_bytes())
        with self.database.unit() as unit:
            line = unit.session.get_one(ModelLine, self.line_id)
            version = add_model(
                unit.session,
                line,
                origin="trained" if run_id else "registered",
                run_id=run_id,
                heads=list(heads or [head.name for head in self.ontology.heads]),
                weights_blob_id=register(unit.session, self.project_id, stored, "application/vnd.safetensors").id,
                weights_sha256=stored.sha256,
                config=dict(model.files.config),
                created_by="test",
            )
            if judged:
                version.score_reference = {head: [step / 100 for step in range(101)] for head in version.heads}
            unit.commit()
        return version.id

    def judge(self, scorer: Scorer, model_id: uuid.UUID, golden_id: uuid.UUID, **payload: Any) -> GateReport | None:
        """Judge a model now; the report, none for a repeat that only measures noise."""
        self.enqueue("judge", model_id, {"golden_set_id": str(golden_id), **payload})
        report_id = judge(self.database, self.blobs, self.reader, scorer, self.claim("judge"))
        with self.database.read() as session:
            return session.get_one(GateReport, report_id) if report_id else None

    def score(self, scorer: Scorer, lease: ledger.Lease | None = None) -> int:
        return score(self.database, self.blobs, self.reader, scorer, lease or self.claim("score"))

    def score_pool(self, scorer: Scorer) -> int:
        """Every due score job; returns how many there were."""
        done = 0
        while leases := ledger.claim(self.database, "score", "tester"):
            self.score(scorer, leases[0])
            done += 1
        return done

    def pass_report(self, model_id: uuid.UUID, golden_id: uuid.UUID) -> uuid.UUID:
        """A report that passed, as if the gate had found this model better than the champion of now."""
        with self.database.unit() as unit:
            model = unit.session.get_one(ModelVersion, model_id)
            report = GateReport(
                id=new_id(),
                project_id=self.project_id,
                line_id=self.line_id,
                challenger_id=model_id,
                challenger_weights_sha256=model.weights_sha256,
                champion_id=unit.session.get_one(ModelLine, self.line_id).champion_id,
                golden_set_id=golden_id,
                golden_look=1,
                target_heads=["road"],
                verdict="passed",
                reasons=[],
                report={},
            )
            unit.session.add(report)
            unit.commit()
        return report.id

    def crown(self, model_id: uuid.UUID, golden_id: uuid.UUID) -> Moved:
        """Make a model the champion."""
        return promote(self.database, self.pass_report(model_id, golden_id), "tester")

    def campaign(self, name: str = "tail", *, budget: int = 8, batch_size: int = 8, **request: Any) -> uuid.UUID:
        with self.database.unit() as unit:
            wanted = CampaignRequest(
                name,
                self.line().name,
                request.pop("heads", ["road", "light"]),
                budget,
                batch_size,
                **request,
            )
            campaign = make_campaign(unit, self.project_id, wanted)
            unit.commit()
        return campaign.id

    def select(self, campaign_id: uuid.UUID) -> Selected | None:
        """Let the campaign choose now."""
        self.enqueue("select", campaign_id)
        return select_batch(self.database, self.blobs, self.claim("select"))

    # --- looking ---

    def count(self, table: type[Table], *where: ColumnElement[bool]) -> int:
        with self.database.read() as session:
            return session.scalar(select(func.count()).select_from(table).where(*where)) or 0

    def all(self, table: type[Row], *where: ColumnElement[bool]) -> list[Row]:
        """Rows by id."""
        with self.database.read() as session:
            return list(session.scalars(select(table).where(*where).order_by(table.id)))  # type: ignore[attr-defined]

    def line(self) -> ModelLine:
        with self.database.read() as session:
            return session.get_one(ModelLine, self.line_id)

    def model(self, model_id: uuid.UUID) -> ModelVersion:
        with self.database.read() as session:
            return session.get_one(ModelVersion, model_id)

    def run(self, run_id: uuid.UUID) -> Run:
        with self.database.read() as session:
            return session.get_one(Run, run_id)

    def clip(self, clip_id: uuid.UUID) -> Clip:
        with self.database.read() as session:
            return session.get_one(Clip, clip_id)


@pytest.fixture(scope="session")
def media_pool() -> Iterator[MediaPool]:
    pool = MediaPool()
    yield pool
    pool.close()


@pytest.fixture
def make_loop(database_url: str, data_dir: Path, media_pool: MediaPool) -> Iterator[Callable[..., Loop]]:
    """`make_loop(*heads, **settings)` gives a line of its own in this test's database."""
    engine = connect(database_url)
    database = Database(engine, Undispatched())
    made: list[Loop] = []

    def make(*heads: Head, **settings: Any) -> Loop:
        given = ontology(*heads, version=len(made) + 1)
        with database.unit() as unit:
            project_id = ensure_default(unit.session).id
            line = ModelLine(
                id=new_id(),
                project_id=project_id,
                name=f"roads-{len(made)}",
                ontology_id=add_ontology(unit.session, project_id, given).id,
                settings={**SETTINGS, **settings},
            )
            unit.session.add(line)
            unit.commit()
        made.append(
            Loop(
                database=database,
                blobs=LocalBlobStore(data_dir / "blobs"),
                probe=ChildMediaProbe(media_pool),
                reader=ChildFrameReader(media_pool),
                project_id=project_id,
                line_id=line.id,
                ontology=given,
                folder=data_dir,
            )
        )
        return made[-1]

    yield make
    engine.dispose()


@pytest.fixture
def loop(make_loop: Callable[..., Loop]) -> Loop:
    return make_loop()
