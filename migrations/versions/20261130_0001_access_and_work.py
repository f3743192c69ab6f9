"""access and work

Revision: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None


def upgrade() -> None:
    # A migration that has to wait for a lock gives up instead of stopping everyone behind it.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("CREATE EXTENSION IF NOT EXISTS vector")
    op.create_table(
        "projects",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("name", name=op.f("uq_projects_name")),
    )
    op.create_table(
        "audit_entries",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("act", sa.Text(), nullable=False),
        sa.Column("object_kind", sa.Text(), nullable=False),
        sa.Column("object_id", sa.Text(), nullable=False),
        sa.Column("details", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_audit_entries_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_entries")),
    )
    op.create_index(op.f("ix_audit_entries_project_id"), "audit_entries", ["project_id"], unique=False)
    op.create_index(
        op.f("ix_audit_entries_project_id_audit_entries_at"), "audit_entries", ["project_id", "at"], unique=False
    )
    op.create_table(
        "device_keys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.Text(), nullable=False),
        sa.Column("any_vehicle", sa.Boolean(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_device_keys_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_device_keys")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_device_keys_project_id_name")),
        sa.UniqueConstraint("secret_sha256", name=op.f("uq_device_keys_secret_sha256")),
    )
    op.create_index(op.f("ix_device_keys_project_id"), "device_keys", ["project_id"], unique=False)
    op.create_table(
        "idempotency_keys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("principal", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_sha256", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("headers", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_idempotency_keys_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_idempotency_keys")),
        sa.UniqueConstraint(
            "project_id", "principal", "key", name=op.f("uq_idempotency_keys_project_id_principal_key")
        ),
    )
    op.create_index(op.f("ix_idempotency_keys_project_id"), "idempotency_keys", ["project_id"], unique=False)
    op.create_table(
        "jobs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        sa.Column("dedupe_key", sa.Text(), nullable=False),
        sa.Column("payload", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("state", sa.Text(), server_default="due", nullable=False),
        sa.Column("priority", sa.Integer(), server_default="0", nullable=False),
        sa.Column("resource_class", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("run_after", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("dispatched_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease_owner", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease_token", sa.Uuid(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("(state = 'leased') = (lease_token IS NOT NULL)", name=op.f("ck_jobs_lease")),
        sa.CheckConstraint("state IN ('due', 'leased', 'done', 'dead', 'cancelled')", name=op.f("ck_jobs_state")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_jobs_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("dedupe_key", name=op.f("uq_jobs_dedupe_key")),
    )
    op.create_index(
        "ix_jobs_claim",
        "jobs",
        ["kind", sa.literal_column("priority DESC"), "run_after", "id"],
        unique=False,
        postgresql_where=sa.text("state = 'due'"),
    )
    op.create_index(
        "ix_jobs_dispatch", "jobs", ["dispatched_at"], unique=False, postgresql_where=sa.text("state = 'due'")
    )
    op.create_index(
        "ix_jobs_leases", "jobs", ["lease_until"], unique=False, postgresql_where=sa.text("state = 'leased'")
    )
    op.create_index(op.f("ix_jobs_project_id"), "jobs", ["project_id"], unique=False)
    op.create_index("ix_jobs_state", "jobs", ["state", "kind"], unique=False)
    op.create_index("ix_jobs_subject", "jobs", ["subject_id"], unique=False)
    op.create_table(
        "schedules",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("job_kind", sa.Text(), nullable=False),
        sa.Column("job_subject_id", sa.Uuid(), nullable=False),
        sa.Column("job_payload", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("every_s", sa.Integer(), nullable=False),
        sa.Column("next_due", sa.DateTime(timezone=True), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_schedules_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_schedules_project_id_name")),
    )
    op.create_index(op.f("ix_schedules_project_id"), "schedules", ["project_id"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret_sha256", sa.Text(), nullable=False),
        sa.Column("scopes", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_tokens_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_tokens_project_id_name")),
        sa.UniqueConstraint("secret_sha256", name=op.f("uq_tokens_secret_sha256")),
    )
    op.create_index(op.f("ix_tokens_project_id"), "tokens", ["project_id"], unique=False)
    op.create_table(
        "device_key_vehicles",
        sa.Column("device_key_id", sa.Uuid(), nullable=False),
        sa.Column("vehicle_external_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["device_key_id"], ["device_keys.id"], name=op.f("fk_device_key_vehicles_device_key_id")
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_device_key_vehicles_project_id")),
        sa.PrimaryKeyConstraint("device_key_id", "vehicle_external_id", name=op.f("pk_device_key_vehicles")),
    )
    op.create_index(op.f("ix_device_key_vehicles_project_id"), "device_key_vehicles", ["project_id"], unique=False)
    op.create_table(
        "schedule_firings",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("schedule_id", sa.Uuid(), nullable=False),
        sa.Column("due", sa.DateTime(timezone=True), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("fired_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_schedule_firings_project_id")),
        sa.ForeignKeyConstraint(["schedule_id"], ["schedules.id"], name=op.f("fk_schedule_firings_schedule_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedule_firings")),
        sa.UniqueConstraint("schedule_id", "due", name=op.f("uq_schedule_firings_schedule_id_due")),
    )
    op.create_index(op.f("ix_schedule_firings_project_id"), "schedule_firings", ["project_id"], unique=False)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index(op.f("ix_schedule_firings_project_id"), table_name="schedule_firings")
    op.drop_table("schedule_firings")
    op.drop_index(op.f("ix_device_key_vehicles_project_id"), table_name="device_key_vehicles")
    op.drop_table("device_key_vehicles")
    op.drop_index(op.f("ix_tokens_project_id"), table_name="tokens")
    op.drop_table("tokens")
    op.drop_index(op.f("ix_schedules_project_id"), table_name="schedules")
    op.drop_table("schedules")
    op.drop_index("ix_jobs_subject", table_name="jobs")
    op.drop_index("ix_jobs_state", table_name="jobs")
    op.drop_index(op.f("ix_jobs_project_id"), table_name="jobs")
    op.drop_index("ix_jobs_leases", table_name="jobs", postgresql_where=sa.text("state = 'leased'"))
    op.drop_index("ix_jobs_dispatch", table_name="jobs", postgresql_where=sa.text("state = 'due'"))
    op.drop_index("ix_jobs_claim", table_name="jobs", postgresql_where=sa.text("state = 'due'"))
    op.drop_table("jobs")
    op.drop_index(op.f("ix_idempotency_keys_project_id"), table_name="idempotency_keys")
    op.drop_table("idempotency_keys")
    op.drop_index(op.f("ix_device_keys_project_id"), table_name="device_keys")
    op.drop_table("device_keys")
    op.drop_index(op.f("ix_audit_entries_project_id_audit_entries_at"), table_name="audit_entries")
    op.drop_index(op.f("ix_audit_entries_project_id"), table_name="audit_entries")
    op.drop_table("audit_entries")
    op.drop_table("projects")
