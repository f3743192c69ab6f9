"""recordings

Revision: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # A migration that has to wait for a lock gives up instead of stopping everyone behind it.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "blobs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("storage", sa.Text(), server_default="managed", nullable=False),
        sa.Column("uri", sa.Text(), nullable=True),
        sa.Column("version", sa.Text(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("(storage = 'external') = (uri IS NOT NULL)", name=op.f("ck_blobs_uri")),
        sa.CheckConstraint("sha256 IS NOT NULL OR storage = 'external'", name=op.f("ck_blobs_hashed")),
        sa.CheckConstraint("storage IN ('managed', 'external')", name=op.f("ck_blobs_storage")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_blobs_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_blobs")),
        sa.UniqueConstraint("project_id", "sha256", name=op.f("uq_blobs_project_id_sha256")),
    )
    op.create_index(op.f("ix_blobs_project_id"), "blobs", ["project_id"], unique=False)
    op.create_table(
        "calibrations",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("camera_model", sa.Text(), nullable=False),
        sa.Column("intrinsics", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("vehicle_from_sensor", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("shutter", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_calibrations_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calibrations")),
        sa.UniqueConstraint("project_id", "digest", name=op.f("uq_calibrations_project_id_digest")),
    )
    op.create_index(op.f("ix_calibrations_project_id"), "calibrations", ["project_id"], unique=False)
    op.create_table(
        "erasures",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("scope_kind", sa.Text(), nullable=False),
        sa.Column("scope_id", sa.Uuid(), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column(
            "requested_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("receipt", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_erasures_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_erasures")),
    )
    op.create_index(op.f("ix_erasures_project_id"), "erasures", ["project_id"], unique=False)
    op.create_table(
        "split_groups",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("split IN ('pool', 'golden')", name=op.f("ck_split_groups_split")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_split_groups_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_split_groups")),
        sa.UniqueConstraint("id", "split", name=op.f("uq_split_groups_id_split")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_split_groups_project_id_name")),
    )
    op.create_index(op.f("ix_split_groups_project_id"), "split_groups", ["project_id"], unique=False)
    op.create_table(
        "vehicles",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("external_id", sa.Text(), nullable=False),
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_vehicles_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vehicles")),
        sa.UniqueConstraint("project_id", "external_id", name=op.f("uq_vehicles_project_id_external_id")),
    )
    op.create_index(op.f("ix_vehicles_project_id"), "vehicles", ["project_id"], unique=False)
    op.create_table(
        "drives",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("vehicle_id", sa.Uuid(), nullable=False),
        sa.Column("external_id", sa.Text(), nullable=False),
        sa.Column("split_group_id", sa.Uuid(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_drives_project_id")),
        sa.ForeignKeyConstraint(
            ["split_group_id", "split"],
            ["split_groups.id", "split_groups.split"],
            name=op.f("fk_drives_split_group_id_split"),
        ),
        sa.ForeignKeyConstraint(["vehicle_id"], ["vehicles.id"], name=op.f("fk_drives_vehicle_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_drives")),
        sa.UniqueConstraint("id", "split", name=op.f("uq_drives_id_split")),
        sa.UniqueConstraint(
            "project_id", "vehicle_id", "external_id", name=op.f("uq_drives_project_id_vehicle_id_external_id")
        ),
    )
    op.create_index(op.f("ix_drives_project_id"), "drives", ["project_id"], unique=False)
    op.create_table(
        "tombstones",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("erasure_id", sa.Uuid(), nullable=False),
        sa.Column("object_kind", sa.Text(), nullable=False),
        sa.Column("object_id", sa.Uuid(), nullable=False),
        sa.Column("erased_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["erasure_id"], ["erasures.id"], name=op.f("fk_tombstones_erasure_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_tombstones_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tombstones")),
        sa.UniqueConstraint("object_kind", "object_id", name=op.f("uq_tombstones_object_kind_object_id")),
    )
    op.create_index(op.f("ix_tombstones_project_id"), "tombstones", ["project_id"], unique=False)
    op.create_table(
        "clips",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("vehicle_id", sa.Uuid(), nullable=False),
        sa.Column("drive_id", sa.Uuid(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("external_id", sa.Text(), nullable=False),
        sa.Column("manifest_sha256", sa.Text(), nullable=False),
        sa.Column("manifest", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("start_ns", sa.BigInteger(), nullable=False),
        sa.Column("end_ns", sa.BigInteger(), nullable=False),
        sa.Column("clock_source", sa.Text(), nullable=False),
        sa.Column("clock_error_ns", sa.BigInteger(), nullable=True),
        sa.Column("clock_suspect", sa.Boolean(), nullable=False),
        sa.Column("onboard_model_version", sa.Text(), nullable=True),
        sa.Column("onboard_software", sa.Text(), nullable=True),
        sa.Column("licence", sa.Text(), nullable=False),
        sa.Column("allowed_purposes", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("region", sa.Text(), nullable=True),
        sa.Column("retain_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("legal_hold", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("tags", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("telemetry", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("events", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "received_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint(
            "clock_source IN ('gps', 'ptp', 'ntp', 'device', 'unknown')", name=op.f("ck_clips_clock_source")
        ),
        sa.CheckConstraint(
            "state IN ('offered', 'requested', 'received', 'scored', 'expired', 'erased')", name=op.f("ck_clips_state")
        ),
        sa.ForeignKeyConstraint(
            ["drive_id", "split"], ["drives.id", "drives.split"], name=op.f("fk_clips_drive_id_split")
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_clips_project_id")),
        sa.ForeignKeyConstraint(["vehicle_id"], ["vehicles.id"], name=op.f("fk_clips_vehicle_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_clips")),
        sa.UniqueConstraint("id", "split", name=op.f("uq_clips_id_split")),
        sa.UniqueConstraint(
            "project_id", "vehicle_id", "external_id", name=op.f("uq_clips_project_id_vehicle_id_external_id")
        ),
    )
    op.create_index("ix_clips_drive_id", "clips", ["drive_id"], unique=False)
    op.create_index("ix_clips_listing", "clips", ["project_id", "id"], unique=False)
    op.create_index(op.f("ix_clips_project_id"), "clips", ["project_id"], unique=False)
    op.create_table(
        "media_claims",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("drive_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["drive_id"], ["drives.id"], name=op.f("fk_media_claims_drive_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_media_claims_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_media_claims")),
        sa.UniqueConstraint("project_id", "sha256", name=op.f("uq_media_claims_project_id_sha256")),
    )
    op.create_index(op.f("ix_media_claims_project_id"), "media_claims", ["project_id"], unique=False)
    op.create_table(
        "streams",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("clip_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("blob_id", sa.Uuid(), nullable=False),
        sa.Column("codec", sa.Text(), nullable=False),
        sa.Column("width", sa.Integer(), nullable=False),
        sa.Column("height", sa.Integer(), nullable=False),
        sa.Column("time_base_num", sa.Integer(), nullable=False),
        sa.Column("time_base_den", sa.Integer(), nullable=False),
        sa.Column("pts", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("start_offset_ns", sa.BigInteger(), nullable=False),
        sa.Column("calibration_id", sa.Uuid(), nullable=True),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["blob_id"], ["blobs.id"], name=op.f("fk_streams_blob_id")),
        sa.ForeignKeyConstraint(["calibration_id"], ["calibrations.id"], name=op.f("fk_streams_calibration_id")),
        sa.ForeignKeyConstraint(["clip_id"], ["clips.id"], name=op.f("fk_streams_clip_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_streams_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_streams")),
        sa.UniqueConstraint("clip_id", "name", name=op.f("uq_streams_clip_id_name")),
    )
    op.create_index("ix_streams_blob_id", "streams", ["blob_id"], unique=False)
    op.create_index(op.f("ix_streams_project_id"), "streams", ["project_id"], unique=False)
    op.create_table(
        "frames",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("clip_id", sa.Uuid(), nullable=False),
        sa.Column("stream_id", sa.Uuid(), nullable=False),
        sa.Column("pts", sa.BigInteger(), nullable=False),
        sa.Column("capture_ns", sa.BigInteger(), nullable=False),
        sa.Column("picture_blob_id", sa.Uuid(), nullable=True),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["clip_id"], ["clips.id"], name=op.f("fk_frames_clip_id")),
        sa.ForeignKeyConstraint(["picture_blob_id"], ["blobs.id"], name=op.f("fk_frames_picture_blob_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_frames_project_id")),
        sa.ForeignKeyConstraint(["stream_id"], ["streams.id"], name=op.f("fk_frames_stream_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_frames")),
        sa.UniqueConstraint("stream_id", "pts", name=op.f("uq_frames_stream_id_pts")),
    )
    op.create_index("ix_frames_clip_id", "frames", ["clip_id"], unique=False)
    op.create_index(op.f("ix_frames_project_id"), "frames", ["project_id"], unique=False)
    op.create_table(
        "subjects",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("clip_id", sa.Uuid(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("frame_id", sa.Uuid(), nullable=True),
        sa.Column("start_ns", sa.BigInteger(), nullable=False),
        sa.Column("end_ns", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("(kind = 'frame') = (frame_id IS NOT NULL)", name=op.f("ck_subjects_frame")),
        sa.CheckConstraint("kind IN ('frame', 'moment', 'span')", name=op.f("ck_subjects_kind")),
        sa.ForeignKeyConstraint(
            ["clip_id", "split"], ["clips.id", "clips.split"], name=op.f("fk_subjects_clip_id_split")
        ),
        sa.ForeignKeyConstraint(["frame_id"], ["frames.id"], name=op.f("fk_subjects_frame_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_subjects_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_subjects")),
        sa.UniqueConstraint("id", "split", name=op.f("uq_subjects_id_split")),
    )
    op.create_index("ix_subjects_clip_id", "subjects", ["clip_id"], unique=False)
    op.create_index(op.f("ix_subjects_project_id"), "subjects", ["project_id"], unique=False)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index(op.f("ix_subjects_project_id"), table_name="subjects")
    op.drop_index("ix_subjects_clip_id", table_name="subjects")
    op.drop_table("subjects")
    op.drop_index(op.f("ix_frames_project_id"), table_name="frames")
    op.drop_index("ix_frames_clip_id", table_name="frames")
    op.drop_table("frames")
    op.drop_index(op.f("ix_streams_project_id"), table_name="streams")
    op.drop_index("ix_streams_blob_id", table_name="streams")
    op.drop_table("streams")
    op.drop_index(op.f("ix_media_claims_project_id"), table_name="media_claims")
    op.drop_table("media_claims")
    op.drop_index(op.f("ix_clips_project_id"), table_name="clips")
    op.drop_index("ix_clips_listing", table_name="clips")
    op.drop_index("ix_clips_drive_id", table_name="clips")
    op.drop_table("clips")
    op.drop_index(op.f("ix_tombstones_project_id"), table_name="tombstones")
    op.drop_table("tombstones")
    op.drop_index(op.f("ix_drives_project_id"), table_name="drives")
    op.drop_table("drives")
    op.drop_index(op.f("ix_vehicles_project_id"), table_name="vehicles")
    op.drop_table("vehicles")
    op.drop_index(op.f("ix_split_groups_project_id"), table_name="split_groups")
    op.drop_table("split_groups")
    op.drop_index(op.f("ix_erasures_project_id"), table_name="erasures")
    op.drop_table("erasures")
    op.drop_index(op.f("ix_calibrations_project_id"), table_name="calibrations")
    op.drop_table("calibrations")
    op.drop_index(op.f("ix_blobs_project_id"), table_name="blobs")
    op.drop_table("blobs")
