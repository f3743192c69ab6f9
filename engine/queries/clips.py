"""Clips as they are shown: lists, and one clip with all that became of it."""

from __future__ import annotations

import uuid
from collections import defaultdict
from typing import Any

from sqlalchemy import Row, Select, select
from sqlalchemy.orm import Session

from engine.domain.refusals import NotFound
from engine.queries import erasures
from engine.store.tables.labels import (
    Campaign,
    DatasetSubject,
    DatasetVersion,
    GoldenSubject,
    Label,
    QueueItem,
)
from engine.store.tables.models import ModelLine, ModelVersion, Run, Score, Scoring
from engine.store.tables.recordings import (
    Blob,
    Calibration,
    Clip,
    Drive,
    Frame,
    SplitGroup,
    Stream,
    Subject,
    Vehicle,
)


def _clips() -> Select[*tuple[Any, ...]]:
    return (
        select(Clip, Vehicle.external_id, Vehicle.platform, Drive.external_id, SplitGroup.name)
        .join(Vehicle, Vehicle.id == Clip.vehicle_id)
        .join(Drive, Drive.id == Clip.drive_id)
        .join(SplitGroup, SplitGroup.id == Drive.split_group_id)
    )


def listing(
    session: Session,
    project_id: uuid.UUID,
    *,
    limit: int,
    after: uuid.UUID | None = None,
    state: str | None = None,
    split: str | None = None,
    vehicle: str | None = None,
    drive: str | None = None,
) -> list[dict[str, Any]]:
    """Clips with an id greater than `after`, in the order of their ids, which is that of their arrival.

    Clips that are being erased are left out, unless they are asked for.
    """
    query = _clips().where(Clip.project_id == project_id).order_by(Clip.id).limit(limit)
    if after is not None:
        query = query.where(Clip.id > after)
    query = query.where(Clip.state == state) if state is not None else query.where(Clip.state != "erased")
    if split is not None:
        query = query.where(Clip.split == split)
    if vehicle is not None:
        query = query.where(Vehicle.external_id == vehicle)
    if drive is not None:
        query = query.where(Drive.external_id == drive)
    return [_summary(row) for row in session.execute(query)]


def no_such_clip(clip_id: uuid.UUID) -> NotFound:
    """What is said of a clip that is not there, and of one that the caller may not know of."""
    return NotFound("no-such-clip", f"there is no clip {clip_id}", "list the clips with GET /v1/clips")


def detail(session: Session, project_id: uuid.UUID, clip_id: uuid.UUID) -> dict[str, Any]:
    """One clip with its streams, scores, the reasons why frames of it were chosen, and its lineage.

    Raises NotFound, and Gone for one that was erased.
    """
    row = session.execute(_clips().where(Clip.project_id == project_id, Clip.id == clip_id)).one_or_none()
    if row is None or row[0].state == "erased":
        erasure = erasures.of_clip(session, project_id, clip_id)
        raise erasures.gone(clip_id, erasure) if erasure else no_such_clip(clip_id)
    clip, _, platform, _, split_group = row
    return {
        **_summary(row),
        "platform": platform,
        "split_group": split_group,
        "clock_source": clip.clock_source,
        "clock_error_ns": clip.clock_error_ns,
        "onboard_model_version": clip.onboard_model_version,
        "onboard_software": clip.onboard_software,
        "licence": clip.licence,
        "allowed_purposes": clip.allowed_purposes,
        "region": clip.region,
        "retain_until": clip.retain_until,
        "legal_hold": erasures.is_held(session, clip),
        "events": clip.events,
        "streams": _streams(session, clip_id),
        "scores": _scores(session, clip_id),
        "chosen": _chosen(session, clip_id),
        "lineage": {
            "labels": _labels(session, clip_id),
            "used_by": _used_by(session, clip_id),
            "golden_sets": list(
                session.execute(
                    select(GoldenSubject.golden_set_id)
                    .distinct()
                    .join(Subject, Subject.id == GoldenSubject.subject_id)
                    .where(Subject.clip_id == clip_id)
                ).scalars()
            ),
        },
    }


def _summary(row: Row[*tuple[Any, ...]]) -> dict[str, Any]:
    clip, vehicle, _, drive, _ = row
    return {
        "id": clip.id,
        "external_id": clip.external_id,
        "vehicle": vehicle,
        "drive": drive,
        "split": clip.split,
        "state": clip.state,
        "start_ns": clip.start_ns,
        "end_ns": clip.end_ns,
        "clock_suspect": clip.clock_suspect,
        "tags": clip.tags,
        "received_at": clip.received_at,
    }


def _streams(session: Session, clip_id: uuid.UUID) -> list[dict[str, Any]]:
    rows = session.execute(
        select(Stream, Blob, Calibration)
        .join(Blob, Blob.id == Stream.blob_id)
        .outerjoin(Calibration, Calibration.id == Stream.calibration_id)
        .where(Stream.clip_id == clip_id)
        .order_by(Stream.name)
    )
    return [
        {
            "name": stream.name,
            "kind": stream.kind,
            "sha256": blob.sha256,
            "size_bytes": blob.size_bytes,
            "codec": stream.codec,
            "width": stream.width,
            "height": stream.height,
            "time_base": [stream.time_base_num, stream.time_base_den],
            "pts": stream.pts,
            "start_offset_ns": stream.start_offset_ns,
            "calibration": {
                "digest": calibration.digest,
                "camera_model": calibration.camera_model,
                "intrinsics": calibration.intrinsics,
                "vehicle_from_sensor": calibration.vehicle_from_sensor,
                "shutter": calibration.shutter,
            }
            if calibration
            else None,
        }
        for stream, blob, calibration in rows
    ]


def _scores(session: Session, clip_id: uuid.UUID) -> list[dict[str, Any]]:
    scorings = session.execute(
        select(Scoring, ModelVersion.number, ModelLine.name)
        .join(ModelVersion, ModelVersion.id == Scoring.model_version_id)
        .join(ModelLine, ModelLine.id == ModelVersion.line_id)
        .where(Scoring.clip_id == clip_id)
        .order_by(Scoring.id)
    ).all()
    frames: dict[uuid.UUID, dict[uuid.UUID, dict[str, Any]]] = defaultdict(dict)
    rows = session.execute(
        select(Score, Frame.pts, Frame.capture_ns, Stream.name)
        .join(Scoring, Scoring.id == Score.scoring_id)
        .join(Frame, Frame.id == Score.subject_id)
        .join(Stream, Stream.id == Frame.stream_id)
        .where(Scoring.clip_id == clip_id)
        .order_by(Stream.name, Frame.pts, Score.head)
    )
    for score, pts, capture_ns, stream in rows:
        frame = frames[score.scoring_id].setdefault(
            score.subject_id,
            {"subject_id": score.subject_id, "stream": stream, "pts": pts, "capture_ns": capture_ns, "heads": []},
        )
        frame["heads"].append({"head": score.head, "raw": score.raw, "quantile": score.quantile})
    return [
        {
            "model_version_id": scoring.model_version_id,
            "model": f"{line} v{number}",
            "created_at": scoring.created_at,
            "frames": list(frames[scoring.id].values()),
        }
        for scoring, number, line in scorings
    ]


def _chosen(session: Session, clip_id: uuid.UUID) -> list[dict[str, Any]]:
    rows = session.execute(
        select(QueueItem, Campaign.name)
        .join(Campaign, Campaign.id == QueueItem.campaign_id)
        .join(Subject, Subject.id == QueueItem.subject_id)
        .where(Subject.clip_id == clip_id)
        .order_by(QueueItem.id)
    )
    return [
        {
            "queue_item_id": item.id,
            "subject_id": item.subject_id,
            "campaign": campaign,
            "arm": item.arm,
            "state": item.state,
            "heads": item.heads,
            "inclusion_probability": item.inclusion_probability,
            "reason": item.reason,
        }
        for item, campaign in rows
    ]


def _labels(session: Session, clip_id: uuid.UUID) -> list[dict[str, Any]]:
    rows = session.execute(
        select(Label)
        .join(Subject, Subject.id == Label.subject_id)
        .where(Subject.clip_id == clip_id, Label.superseded_by_id.is_(None))
        .order_by(Label.id)
    ).scalars()
    return [
        {
            "id": label.id,
            "subject_id": label.subject_id,
            "head": label.head,
            "source": label.source,
            "revision": label.revision,
        }
        for label in rows
    ]


def _used_by(session: Session, clip_id: uuid.UUID) -> list[dict[str, Any]]:
    datasets = session.execute(
        select(DatasetVersion, ModelLine.name)
        .join(ModelLine, ModelLine.id == DatasetVersion.line_id)
        .where(
            DatasetVersion.id.in_(
                select(DatasetSubject.dataset_version_id)
                .join(Subject, Subject.id == DatasetSubject.subject_id)
                .where(Subject.clip_id == clip_id)
            )
        )
        .order_by(DatasetVersion.id)
    ).all()
    models: dict[uuid.UUID, list[uuid.UUID]] = defaultdict(list)
    if datasets:
        rows = session.execute(
            select(Run.dataset_version_id, ModelVersion.id)
            .join(ModelVersion, ModelVersion.run_id == Run.id)
            .where(Run.dataset_version_id.in_([dataset.id for dataset, _ in datasets]))
            .order_by(ModelVersion.id)
        )
        for dataset_id, model_id in rows:
            models[dataset_id].append(model_id)
    return [
        {
            "dataset_version_id": dataset.id,
            "dataset": f"{line} #{dataset.number}",
            "model_version_ids": models[dataset.id],
        }
        for dataset, line in datasets
    ]
