"""What the fleet sent: vehicles, drives, clips, their streams and frames, and the subjects made of them."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from engine.store.tables.metadata import CreatedAt, Id, InProject, Nanoseconds, Table

SPLITS = "split IN ('pool', 'golden')"


class Blob(InProject, Table):
    """Bytes, by content: managed ones are in our store, external ones stay in the operator's bucket."""

    __tablename__ = "blobs"
    __table_args__ = (
        UniqueConstraint("project_id", "sha256"),
        CheckConstraint("storage IN ('managed', 'external')", name="storage"),
        CheckConstraint("(storage = 'external') = (uri IS NOT NULL)", name="uri"),
        CheckConstraint("sha256 IS NOT NULL OR storage = 'external'", name="hashed"),
    )

    id: Mapped[Id]
    sha256: Mapped[str | None]  # an external blob is hashed when it is first read
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    media_type: Mapped[str]
    storage: Mapped[str] = mapped_column(server_default="managed")
    uri: Mapped[str | None]
    version: Mapped[str | None]
    created_at: Mapped[CreatedAt]


class Vehicle(InProject, Table):
    """A camera vehicle."""

    __tablename__ = "vehicles"
    __table_args__ = (UniqueConstraint("project_id", "external_id"),)

    id: Mapped[Id]
    external_id: Mapped[str]
    platform: Mapped[str]
    created_at: Mapped[CreatedAt]


class SplitGroup(InProject, Table):
    """What may never be on both sides of a split. Its split is decided once, before anything of it is scored."""

    __tablename__ = "split_groups"
    __table_args__ = (
        UniqueConstraint("project_id", "name"),
        UniqueConstraint("id", "split"),
        CheckConstraint(SPLITS, name="split"),
    )

    id: Mapped[Id]
    name: Mapped[str]
    split: Mapped[str]
    policy: Mapped[str]  # how the split was decided: "manifest" (the sender asked for it) or "default"


class Drive(InProject, Table):
    """The trip that clips were cut from; it carries its split group's split, held by the composite foreign key."""

    __tablename__ = "drives"
    __table_args__ = (
        UniqueConstraint("project_id", "vehicle_id", "external_id"),
        UniqueConstraint("id", "split"),
        ForeignKeyConstraint(["split_group_id", "split"], ["split_groups.id", "split_groups.split"]),
    )

    id: Mapped[Id]
    vehicle_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("vehicles.id"))
    external_id: Mapped[str]
    split_group_id: Mapped[uuid.UUID]
    split: Mapped[str]
    created_at: Mapped[CreatedAt]


class Clip(InProject, Table):
    """A short recording from one vehicle."""

    __tablename__ = "clips"
    __table_args__ = (
        UniqueConstraint("project_id", "vehicle_id", "external_id"),
        UniqueConstraint("id", "split"),
        ForeignKeyConstraint(["drive_id", "split"], ["drives.id", "drives.split"]),
        CheckConstraint("state IN ('offered', 'requested', 'received', 'scored', 'expired', 'erased')", name="state"),
        CheckConstraint("clock_source IN ('gps', 'ptp', 'ntp', 'device', 'unknown')", name="clock_source"),
        Index("ix_clips_listing", "project_id", "id"),
        Index("ix_clips_drive_id", "drive_id"),
        Index("ix_clips_vehicle_id", "vehicle_id"),
        Index("ix_clips_erasure_id", "erasure_id", postgresql_where=text("erasure_id IS NOT NULL")),
        Index("ix_clips_retain_until", "retain_until", postgresql_where=text("retain_until IS NOT NULL")),
    )

    id: Mapped[Id]
    vehicle_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("vehicles.id"))
    drive_id: Mapped[uuid.UUID]
    split: Mapped[str]
    external_id: Mapped[str]
    manifest_sha256: Mapped[str]
    manifest: Mapped[dict[str, Any]]
    state: Mapped[str]
    start_ns: Mapped[Nanoseconds]
    end_ns: Mapped[Nanoseconds]
    clock_source: Mapped[str]
    clock_error_ns: Mapped[int | None] = mapped_column(BigInteger)
    clock_suspect: Mapped[bool]  # years off: taken, flagged, and left out of time slices
    onboard_model_version: Mapped[str | None]
    onboard_software: Mapped[str | None]
    licence: Mapped[str]
    allowed_purposes: Mapped[list[str]]
    region: Mapped[str | None]
    retain_until: Mapped[datetime | None]
    tags: Mapped[dict[str, Any]]
    telemetry: Mapped[list[Any]]
    events: Mapped[list[Any]]
    received_at: Mapped[CreatedAt]
    # Set together with the state "erased"; the row itself goes in one of the erasure's later steps.
    erasure_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("erasures.id"))


class Calibration(InProject, Table):
    """Where a sensor sits and how it projects, by digest. Vehicle axes: x forward, y left, z up, metres (ISO 8855)."""

    __tablename__ = "calibrations"
    __table_args__ = (UniqueConstraint("project_id", "digest"),)

    id: Mapped[Id]
    digest: Mapped[str]
    camera_model: Mapped[str]
    intrinsics: Mapped[dict[str, Any]]
    vehicle_from_sensor: Mapped[list[Any]]  # 4x4, row-major
    shutter: Mapped[str]


class MediaClaim(InProject, Table):
    """That these bytes belong to this drive: the same recording under another drive would leak over a split."""

    __tablename__ = "media_claims"
    __table_args__ = (UniqueConstraint("project_id", "sha256"),)

    id: Mapped[Id]
    sha256: Mapped[str]
    drive_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("drives.id"))


class Stream(InProject, Table):
    """One camera's or sensor's recording in a clip, with its timestamps (PTS, in units of the time base)."""

    __tablename__ = "streams"
    __table_args__ = (
        UniqueConstraint("clip_id", "name"),
        Index("ix_streams_blob_id", "blob_id"),
        Index("ix_streams_calibration_id", "calibration_id", postgresql_where=text("calibration_id IS NOT NULL")),
    )

    id: Mapped[Id]
    clip_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("clips.id"))
    name: Mapped[str]
    kind: Mapped[str]
    blob_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("blobs.id"))
    codec: Mapped[str]
    width: Mapped[int]
    height: Mapped[int]
    time_base_num: Mapped[int]
    time_base_den: Mapped[int]
    pts: Mapped[list[int]] = mapped_column(ARRAY(BigInteger))
    start_offset_ns: Mapped[Nanoseconds]
    calibration_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("calibrations.id"))


class Frame(InProject, Table):
    """One sampled instant of one stream; its id is derived from (clip, stream, PTS)."""

    __tablename__ = "frames"
    __table_args__ = (
        UniqueConstraint("stream_id", "pts"),
        Index("ix_frames_clip_id", "clip_id"),
        Index("ix_frames_picture_blob_id", "picture_blob_id", postgresql_where=text("picture_blob_id IS NOT NULL")),
    )

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    clip_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("clips.id"))
    stream_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("streams.id"))
    pts: Mapped[int] = mapped_column(BigInteger)
    capture_ns: Mapped[Nanoseconds]
    # Pinned once the frame is chosen or labelled, so that its labels never depend on a decoder's version.
    picture_blob_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("blobs.id"))


class Subject(InProject, Table):
    """What is scored, chosen and labelled. A frame's subject has the frame's id."""

    __tablename__ = "subjects"
    __table_args__ = (
        UniqueConstraint("id", "split"),
        ForeignKeyConstraint(["clip_id", "split"], ["clips.id", "clips.split"]),
        CheckConstraint("kind IN ('frame', 'moment', 'span')", name="kind"),
        CheckConstraint("(kind = 'frame') = (frame_id IS NOT NULL)", name="frame"),
        Index("ix_subjects_clip_id", "clip_id"),
        Index("ix_subjects_frame_id", "frame_id", postgresql_where=text("frame_id IS NOT NULL")),
    )

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    kind: Mapped[str]
    clip_id: Mapped[uuid.UUID]
    split: Mapped[str]
    frame_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("frames.id"))
    start_ns: Mapped[Nanoseconds]
    end_ns: Mapped[Nanoseconds]


class ShownPicture(InProject, Table):
    """What people were shown in a frame's stead because something had to be hidden: it goes when the frame goes."""

    __tablename__ = "shown_pictures"

    frame_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("frames.id"), primary_key=True)
    blob_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("blobs.id"), primary_key=True, index=True)
