"""erasures and holds

Revision: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"

JSON = postgresql.JSONB(astext_type=sa.Text())
NOW = sa.text("clock_timestamp()")

# A row can only be removed quickly where what may point to it is found by an index.
POINTERS = (
    ("audit_entries", "object_id", False),
    ("streams", "calibration_id", True),
    ("frames", "picture_blob_id", True),
    ("subjects", "frame_id", True),
    ("clips", "vehicle_id", False),
    ("clips", "erasure_id", True),
    ("clips", "retain_until", True),
    ("labels", "array_blob_id", True),
    ("labels", "superseded_by_id", True),
    ("label_tasks", "subject_id", False),
    ("dataset_labels", "label_id", False),
    ("golden_subjects", "subject_id", False),
    ("scorings", "predictions_blob_id", False),
    ("embeddings", "subject_id", False),
)


def upgrade() -> None:
    # A migration that has to wait for a lock gives up instead of stopping everyone behind it.
    op.execute("SET LOCAL lock_timeout = '5s'")
    # Both were there and not used: there is nothing in them to carry over.
    op.add_column("erasures", sa.Column("state", sa.Text(), server_default="due", nullable=False))
    op.add_column("erasures", sa.Column("step", sa.Text(), nullable=True))
    op.add_column("erasures", sa.Column("refusal", sa.Text(), nullable=True))
    op.add_column("erasures", sa.Column("reason", sa.Text(), nullable=True))
    op.create_check_constraint(
        op.f("ck_erasures_scope_kind"), "erasures", "scope_kind IN ('vehicle', 'drive', 'clip', 'expired')"
    )
    op.create_check_constraint(op.f("ck_erasures_state"), "erasures", "state IN ('due', 'running', 'done', 'refused')")
    op.create_index(
        "uq_erasures_live",
        "erasures",
        ["scope_kind", "scope_id"],
        unique=True,
        postgresql_where=sa.text("state IN ('due', 'running')"),
    )
    op.create_index("ix_erasures_scope_id", "erasures", ["scope_id"], unique=False)
    op.drop_constraint(op.f("uq_tombstones_object_kind_object_id"), "tombstones", type_="unique")
    op.alter_column("tombstones", "object_id", nullable=True)
    op.add_column("tombstones", sa.Column("key", sa.Text(), nullable=False))
    op.add_column("tombstones", sa.Column("split", sa.Text(), nullable=True))
    op.create_unique_constraint(
        op.f("uq_tombstones_project_id_object_kind_key"), "tombstones", ["project_id", "object_kind", "key"]
    )
    op.create_index("ix_tombstones_object_id", "tombstones", ["object_id"], unique=False)
    op.create_index("ix_tombstones_erasure_id", "tombstones", ["erasure_id"], unique=False)
    op.drop_column("clips", "legal_hold")  # nothing ever set it: holds are rows of their own now
    op.add_column("clips", sa.Column("erasure_id", sa.Uuid(), nullable=True))
    op.create_foreign_key(op.f("fk_clips_erasure_id"), "clips", "erasures", ["erasure_id"], ["id"])
    for table, column, nullable in POINTERS:
        where = sa.text(f"{column} IS NOT NULL") if nullable else None
        op.create_index(f"ix_{table}_{column}", table, [column], postgresql_where=where)
    op.create_index("ix_idempotency_keys_clip_id", "idempotency_keys", [sa.text("(body ->> 'clip_id')")])
    op.create_index(
        "ix_idempotency_keys_label_ids",
        "idempotency_keys",
        [sa.text("(body -> 'label_ids')")],
        postgresql_using="gin",
    )
    for table in ("dataset_versions", "golden_sets"):
        op.add_column(table, sa.Column("remaining_sha256", sa.Text(), nullable=True))
        op.add_column(table, sa.Column("erased", JSON, nullable=True))
    _tables()


def _tables() -> None:
    op.create_table(
        "shown_pictures",
        sa.Column("frame_id", sa.Uuid(), nullable=False),
        sa.Column("blob_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["frame_id"], ["frames.id"], name=op.f("fk_shown_pictures_frame_id")),
        sa.ForeignKeyConstraint(["blob_id"], ["blobs.id"], name=op.f("fk_shown_pictures_blob_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_shown_pictures_project_id")),
        sa.PrimaryKeyConstraint("frame_id", "blob_id", name=op.f("pk_shown_pictures")),
    )
    op.create_index(op.f("ix_shown_pictures_project_id"), "shown_pictures", ["project_id"], unique=False)
    op.create_index(op.f("ix_shown_pictures_blob_id"), "shown_pictures", ["blob_id"], unique=False)
    op.create_table(
        "erased_blobs",
        sa.Column("erasure_id", sa.Uuid(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["erasure_id"], ["erasures.id"], name=op.f("fk_erased_blobs_erasure_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_erased_blobs_project_id")),
        sa.PrimaryKeyConstraint("erasure_id", "sha256", name=op.f("pk_erased_blobs")),
    )
    op.create_index(op.f("ix_erased_blobs_project_id"), "erased_blobs", ["project_id"], unique=False)
    op.create_table(
        "erased_tasks",
        sa.Column("erasure_id", sa.Uuid(), nullable=False),
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("ontology_id", sa.Uuid(), nullable=False),
        sa.Column("tool_project", sa.Integer(), nullable=True),
        sa.Column("seen", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["erasure_id"], ["erasures.id"], name=op.f("fk_erased_tasks_erasure_id")),
        sa.ForeignKeyConstraint(["ontology_id"], ["ontologies.id"], name=op.f("fk_erased_tasks_ontology_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_erased_tasks_project_id")),
        sa.PrimaryKeyConstraint("erasure_id", "task_id", name=op.f("pk_erased_tasks")),
    )
    op.create_index(op.f("ix_erased_tasks_project_id"), "erased_tasks", ["project_id"], unique=False)
    op.create_table(
        "legal_holds",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("scope_kind", sa.Text(), nullable=False),
        sa.Column("scope_id", sa.Uuid(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("placed_by", sa.Text(), nullable=False),
        sa.Column("placed_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.Column("lifted_by", sa.Text(), nullable=True),
        sa.Column("lifted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lift_reason", sa.Text(), nullable=True),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("scope_kind IN ('vehicle', 'drive', 'clip')", name=op.f("ck_legal_holds_scope_kind")),
        sa.CheckConstraint("(lifted_at IS NULL) = (lifted_by IS NULL)", name=op.f("ck_legal_holds_lifted")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_legal_holds_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_legal_holds")),
    )
    op.create_index(op.f("ix_legal_holds_project_id"), "legal_holds", ["project_id"], unique=False)
    op.create_index("ix_legal_holds_scope_id", "legal_holds", ["scope_id"], unique=False)
    op.create_table(
        "retention_policies",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("keep_days", sa.Integer(), nullable=True),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), server_default=NOW, nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("keep_days > 0", name=op.f("ck_retention_policies_keep_days")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_retention_policies_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_retention_policies")),
        sa.UniqueConstraint("project_id", name=op.f("uq_retention_policies_project_id")),
    )
    op.create_index(op.f("ix_retention_policies_project_id"), "retention_policies", ["project_id"], unique=False)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in ("retention_policies", "legal_holds", "erased_tasks", "erased_blobs", "shown_pictures"):
        op.drop_table(table)
    for table in ("dataset_versions", "golden_sets"):
        op.drop_column(table, "erased")
        op.drop_column(table, "remaining_sha256")
    op.drop_index("ix_idempotency_keys_label_ids", table_name="idempotency_keys")
    op.drop_index("ix_idempotency_keys_clip_id", table_name="idempotency_keys")
    for table, column, _ in POINTERS:
        op.drop_index(f"ix_{table}_{column}", table_name=table)
    op.drop_column("clips", "erasure_id")
    op.add_column("clips", sa.Column("legal_hold", sa.Boolean(), server_default="false", nullable=False))
    op.execute("DELETE FROM tombstones")
    op.drop_index("ix_tombstones_erasure_id", table_name="tombstones")
    op.drop_index("ix_tombstones_object_id", table_name="tombstones")
    op.drop_constraint(op.f("uq_tombstones_project_id_object_kind_key"), "tombstones", type_="unique")
    op.drop_column("tombstones", "split")
    op.drop_column("tombstones", "key")
    op.alter_column("tombstones", "object_id", nullable=False)
    op.create_unique_constraint(op.f("uq_tombstones_object_kind_object_id"), "tombstones", ["object_kind", "object_id"])
    op.drop_index("ix_erasures_scope_id", table_name="erasures")
    op.drop_index("uq_erasures_live", table_name="erasures")
    op.drop_constraint(op.f("ck_erasures_state"), "erasures", type_="check")
    op.drop_constraint(op.f("ck_erasures_scope_kind"), "erasures", type_="check")
    for column in ("reason", "refusal", "step", "state"):
        op.drop_column("erasures", column)
