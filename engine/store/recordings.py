"""Rows about what the fleet sent. `ensure_…` is safe when several transactions do it at once.

Nearly always the row is there already, so it is looked for before it is inserted: then one statement does.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.domain.ids import frame_id
from engine.domain.manifest import SensorCalibration, capture_ns
from engine.store.tables.metadata import new_id
from engine.store.tables.recordings import (
    Calibration,
    Clip,
    Drive,
    Frame,
    MediaClaim,
    SplitGroup,
    Stream,
    Subject,
    Vehicle,
)


def ensure_vehicle(session: Session, project_id: uuid.UUID, external_id: str, platform: str) -> Vehicle:
    """The vehicle with this external id; its platform is that of its first clip."""
    wanted = select(Vehicle).where(Vehicle.project_id == project_id, Vehicle.external_id == external_id)
    found = session.scalars(wanted).one_or_none()
    if found is not None:
        return found
    session.execute(
        insert(Vehicle)
        .values(id=new_id(), project_id=project_id, external_id=external_id, platform=platform)
        .on_conflict_do_nothing(index_elements=["project_id", "external_id"])
    )
    return session.scalars(wanted).one()


def share_vehicle(session: Session, vehicle_id: uuid.UUID) -> None:
    """Wait for whoever holds the vehicle alone, and keep others from it, until the transaction ends."""
    session.execute(select(Vehicle.id).where(Vehicle.id == vehicle_id).with_for_update(read=True, key_share=True))


def ensure_split_group(session: Session, project_id: uuid.UUID, name: str, split: str, policy: str) -> SplitGroup:
    """The split group of this name. `split` and `policy` count at first sight only: a split is decided once."""
    wanted = select(SplitGroup).where(SplitGroup.project_id == project_id, SplitGroup.name == name)
    found = session.scalars(wanted).one_or_none()
    if found is not None:
        return found
    session.execute(
        insert(SplitGroup)
        .values(id=new_id(), project_id=project_id, name=name, split=split, policy=policy)
        .on_conflict_do_nothing(index_elements=["project_id", "name"])
    )
    return session.scalars(wanted).one()


def ensure_drive(session: Session, vehicle: Vehicle, external_id: str, group: SplitGroup) -> Drive:
    """The vehicle's drive with this external id; one that was there before may be in another split group."""
    wanted = select(Drive).where(Drive.vehicle_id == vehicle.id, Drive.external_id == external_id)
    found = session.scalars(wanted).one_or_none()
    if found is not None:
        return found
    session.execute(
        insert(Drive)
        .values(
            id=new_id(),
            project_id=vehicle.project_id,
            vehicle_id=vehicle.id,
            external_id=external_id,
            split_group_id=group.id,
            split=group.split,
        )
        .on_conflict_do_nothing(index_elements=["project_id", "vehicle_id", "external_id"])
    )
    return session.scalars(wanted).one()


def ensure_calibration(session: Session, project_id: uuid.UUID, calibration: SensorCalibration) -> uuid.UUID:
    """The id of the calibration with this content."""
    wanted = select(Calibration.id).where(
        Calibration.project_id == project_id, Calibration.digest == calibration.digest
    )
    found = session.scalars(wanted).one_or_none()
    if found is not None:
        return found
    session.execute(
        insert(Calibration)
        .values(
            id=new_id(),
            project_id=project_id,
            digest=calibration.digest,
            camera_model=calibration.camera_model,
            intrinsics=dict(calibration.intrinsics),
            vehicle_from_sensor=[list(row) for row in calibration.vehicle_from_sensor],
            shutter=calibration.shutter,
        )
        .on_conflict_do_nothing(index_elements=["project_id", "digest"])
    )
    return session.scalars(wanted).one()


def find_clip(session: Session, project_id: uuid.UUID, vehicle_external_id: str, external_id: str) -> Clip | None:
    """The vehicle's clip with this external id."""
    return session.execute(
        select(Clip)
        .join(Vehicle, Vehicle.id == Clip.vehicle_id)
        .where(
            Clip.project_id == project_id,
            Vehicle.external_id == vehicle_external_id,
            Clip.external_id == external_id,
        )
    ).scalar_one_or_none()


def find_drive(
    session: Session, project_id: uuid.UUID, vehicle_external_id: str, external_id: str, split_group: str
) -> tuple[SplitGroup | None, Drive | None]:
    """The split group of this name and the vehicle's drive with this external id, each if it is there."""
    group = session.scalar(
        select(SplitGroup).where(SplitGroup.project_id == project_id, SplitGroup.name == split_group)
    )
    drive = session.scalar(
        select(Drive)
        .join(Vehicle, Vehicle.id == Drive.vehicle_id)
        .where(
            Drive.project_id == project_id,
            Vehicle.external_id == vehicle_external_id,
            Drive.external_id == external_id,
        )
    )
    return group, drive


def claims(session: Session, project_id: uuid.UUID, sha256s: Collection[str]) -> dict[str, uuid.UUID]:
    """Which drive has which of these bytes, of those that some drive has."""
    rows = session.execute(
        select(MediaClaim.sha256, MediaClaim.drive_id).where(
            MediaClaim.project_id == project_id, MediaClaim.sha256.in_(sha256s)
        )
    )
    return {sha256: drive_id for sha256, drive_id in rows}


def add_clip(session: Session, values: dict[str, Any]) -> tuple[Clip, bool]:
    """Insert a clip by its columns. Returns the vehicle's clip of that external id, and whether it is the new one."""
    added = session.scalars(
        insert(Clip).on_conflict_do_nothing(index_elements=["project_id", "vehicle_id", "external_id"]).returning(Clip),
        values,  # apart from the statement, which is built and compiled once that way
    ).one_or_none()
    if added is not None:
        return added, True
    earlier = select(Clip).where(Clip.vehicle_id == values["vehicle_id"], Clip.external_id == values["external_id"])
    return session.scalars(earlier).one(), False


def claim_media(session: Session, project_id: uuid.UUID, sha256: str, drive_id: uuid.UUID) -> uuid.UUID:
    """Claim these bytes for a drive. Returns the drive that has them, which is another one if it was there first."""
    claimed = session.execute(
        insert(MediaClaim)
        .values(id=new_id(), project_id=project_id, sha256=sha256, drive_id=drive_id)
        .on_conflict_do_nothing(index_elements=["project_id", "sha256"])
        .returning(MediaClaim.drive_id)
    ).scalar_one_or_none()
    if claimed is not None:
        return claimed
    return session.execute(
        select(MediaClaim.drive_id).where(MediaClaim.project_id == project_id, MediaClaim.sha256 == sha256)
    ).scalar_one()


def ensure_frames(session: Session, clip: Clip, stream: Stream, pts: Sequence[int]) -> list[uuid.UUID]:
    """Rows of the frames at these PTS of the stream, and of their subjects; returns their ids, in the order of `pts`.

    Raises ValueError for a PTS that the stream does not have.
    """
    strange = set(pts) - set(stream.pts)
    if strange:
        raise ValueError(f"stream {stream.name!r} has no frame at PTS {min(strange)}")
    frames, subjects = [], []
    for value in sorted(set(pts)):
        taken = capture_ns(
            clip.start_ns, stream.start_offset_ns, value, stream.pts[0], stream.time_base_num, stream.time_base_den
        )
        identity = frame_id(clip.id, stream.name, value)
        frames.append(
            {
                "id": identity,
                "project_id": clip.project_id,
                "clip_id": clip.id,
                "stream_id": stream.id,
                "pts": value,
                "capture_ns": taken,
            }
        )
        subjects.append(
            {
                "id": identity,
                "project_id": clip.project_id,
                "kind": "frame",
                "clip_id": clip.id,
                "split": clip.split,
                "frame_id": identity,
                "start_ns": taken,
                "end_ns": taken,
            }
        )
    if frames:
        session.execute(insert(Frame).values(frames).on_conflict_do_nothing(index_elements=["id"]))
        session.execute(insert(Subject).values(subjects).on_conflict_do_nothing(index_elements=["id"]))
    return [frame_id(clip.id, stream.name, value) for value in pts]
