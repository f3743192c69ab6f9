"""Rows of a fleet after some turns of the loop, put straight into the database, with pictures and predictions."""

from __future__ import annotations

import hashlib
import uuid
from datetime import timedelta

from sqlalchemy.orm import Session

from engine.adapters.blobs import LocalBlobStore
from engine.domain.ids import frame_id
from engine.store.predictions import MEDIA_TYPE, Prediction, write
from engine.store.projects import ensure_default
from engine.store.tables.metadata import new_id
from engine.store.tables.models import ModelLine, OntologyVersion, Score, Scoring
from engine.store.tables.recordings import Clip, Drive, Frame, SplitGroup, Stream, Subject, Vehicle
from tests.services.dashboard.fleet_gate import reports
from tests.services.dashboard.fleet_making import HEADS, NOW, ONTOLOGY, Fleet, Making, ago
from tests.services.dashboard.fleet_models import models
from tests.services.dashboard.fleet_pictures import FRAMES, HEIGHT, WIDTH, answers, picture, video
from tests.services.dashboard.fleet_schedules import schedules
from tests.services.dashboard.fleet_work import jobs, queue


def build(session: Session, blobs: LocalBlobStore, clips: int = 12) -> Fleet:
    """A line with five versions, reports passed and refused, queue, jobs and schedules in every state; commits."""
    project = ensure_default(session)
    ontology = OntologyVersion(
        id=new_id(),
        project_id=project.id,
        name=ONTOLOGY.name,
        version=1,
        digest=ONTOLOGY.digest,
        document=ONTOLOGY.to_document(),
    )
    session.add(ontology)
    session.flush()
    line = ModelLine(
        id=new_id(), project_id=project.id, name="driving", ontology_id=ontology.id, settings={}, created_at=ago(9)
    )
    session.add(line)
    session.flush()
    fleet = Fleet(project.id, line.id)
    making = Making(session, blobs, fleet, line, ontology.id)
    add_clips(making, clips)
    models(making)
    scores(making)
    queue(making)
    reports(making)
    jobs(making)
    schedules(making)
    session.commit()
    return fleet


def add_clips(making: Making, count: int) -> None:
    vehicles = [
        making.add(Vehicle(id=new_id(), external_id=f"sim-{n:02}", platform="sim", **making.own)) for n in range(3)
    ]
    for number in range(count):
        golden = number % 6 == 5
        night, fog = number % 4 == 1, number % 5 == 2
        split = "golden" if golden else "pool"
        group = making.add(SplitGroup(id=new_id(), name=f"d-{number:04}", split=split, policy="manifest", **making.own))
        drive = making.add(
            Drive(
                id=new_id(),
                vehicle_id=vehicles[number % 3].id,
                external_id=f"d-{number:04}",
                split_group_id=group.id,
                split=split,
                **making.own,
            )
        )
        start = int((NOW - timedelta(hours=30 - number)).timestamp()) * 10**9
        clip = making.add(
            Clip(
                id=new_id(),
                vehicle_id=vehicles[number % 3].id,
                drive_id=drive.id,
                split=split,
                external_id=f"d-{number:04}-c00",
                manifest_sha256=hashlib.sha256(str(number).encode()).hexdigest(),
                manifest={},
                state="received" if golden or number == count - 2 else "scored",
                start_ns=start,
                end_ns=start + FRAMES * 5 * 10**8,
                clock_source="gps",
                clock_suspect=number == 3,
                licence="CC-BY-4.0",
                allowed_purposes=["training", "evaluation"],
                tags={"weather": "fog" if fog else "clear", "time_of_day": "night" if night else "day"},
                telemetry=[],
                events=[{"t_ns": start, "name": "hard_brake"}] if number % 3 == 0 else [],
                received_at=ago(6 - number * 0.2),
                **making.own,
            )
        )
        making.fleet.clip_ids.append(clip.id)
        content, pts = video([picture(number, at, night) for at in range(FRAMES)])
        stream = making.add(
            Stream(
                id=new_id(),
                clip_id=clip.id,
                name="front",
                kind="camera",
                blob_id=making.blob(content, "video/mp4"),
                codec="h264",
                width=WIDTH,
                height=HEIGHT,
                time_base_num=1,
                time_base_den=2,
                pts=list(range(FRAMES)),
                start_offset_ns=0,
                **making.own,
            )
        )
        for at, value in enumerate(pts):
            identity = frame_id(clip.id, "front", value)
            instant = start + at * 5 * 10**8
            making.add(
                Frame(id=identity, clip_id=clip.id, stream_id=stream.id, pts=value, capture_ns=instant, **making.own)
            )
            making.add(
                Subject(
                    id=identity,
                    kind="frame",
                    clip_id=clip.id,
                    split=split,
                    frame_id=identity,
                    start_ns=instant,
                    end_ns=instant,
                    **making.own,
                )
            )
            making.golden.append(identity) if golden else making.subjects.append((clip, identity, number, at))


def scores(making: Making) -> None:
    model = making.fleet.model_ids[3]
    by_clip: dict[uuid.UUID, list[tuple[uuid.UUID, int, int]]] = {}
    for clip, identity, seed, at in making.subjects:
        if clip.state == "scored":
            by_clip.setdefault(clip.id, []).append((identity, seed, at))
    for clip_id, frames in by_clip.items():
        raw = {(identity, head): float(making.rng.beta(2, 2.2)) for identity, _, _ in frames for head in HEADS}
        said = [
            Prediction(str(identity), head, answer, raw[identity, head])
            for identity, seed, at in frames
            for head, answer in answers(seed, at).items()
        ]
        scoring = making.add(
            Scoring(
                id=new_id(),
                clip_id=clip_id,
                model_version_id=model,
                predictions_blob_id=making.blob(write(said), MEDIA_TYPE),
                seconds=0.4,
                **making.own,
            )
        )
        making.session.add_all(
            Score(
                scoring_id=scoring.id,
                subject_id=identity,
                head=head,
                raw=value,
                quantile=making.quantiles.setdefault((identity, head), min(1.0, value * 1.15)),
                **making.own,
            )
            for (identity, head), value in raw.items()
        )
    making.session.flush()
