"""queue and labels

Revision: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    # A migration that has to wait for a lock gives up instead of stopping everyone behind it.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "tool_projects",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("ontology_id", sa.Uuid(), nullable=False),
        sa.Column("tool_project", sa.Integer(), nullable=False),
        sa.Column("collected_until", sa.Text(), nullable=True),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["ontology_id"], ["ontologies.id"], name=op.f("fk_tool_projects_ontology_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_tool_projects_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tool_projects")),
        sa.UniqueConstraint("project_id", "ontology_id", name=op.f("uq_tool_projects_project_id_ontology_id")),
    )
    op.create_index(op.f("ix_tool_projects_project_id"), "tool_projects", ["project_id"], unique=False)
    op.create_table(
        "golden_sets",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("line_id", sa.Uuid(), nullable=False),
        sa.Column("ontology_id", sa.Uuid(), nullable=False),
        sa.Column("content_sha256", sa.Text(), nullable=False),
        sa.Column("header", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("manifest_blob_id", sa.Uuid(), nullable=False),
        sa.Column("blind", sa.Boolean(), nullable=False),
        sa.Column("looks", sa.Integer(), server_default="0", nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["line_id"], ["model_lines.id"], name=op.f("fk_golden_sets_line_id")),
        sa.ForeignKeyConstraint(["manifest_blob_id"], ["blobs.id"], name=op.f("fk_golden_sets_manifest_blob_id")),
        sa.ForeignKeyConstraint(["ontology_id"], ["ontologies.id"], name=op.f("fk_golden_sets_ontology_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_golden_sets_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_golden_sets")),
        sa.UniqueConstraint("project_id", "name", "version", name=op.f("uq_golden_sets_project_id_name_version")),
    )
    op.create_index(op.f("ix_golden_sets_project_id"), "golden_sets", ["project_id"], unique=False)
    op.create_table(
        "campaigns",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("line_id", sa.Uuid(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("triggers", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("trigger_sha256", sa.Text(), nullable=False),
        sa.Column("heads", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("budget", sa.Integer(), nullable=False),
        sa.Column("spent", sa.Integer(), server_default="0", nullable=False),
        sa.Column("batch_size", sa.Integer(), nullable=False),
        sa.Column("control_fraction", sa.Float(precision=53), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("settings", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("golden_set_id", sa.Uuid(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("state IN ('active', 'paused', 'ended')", name=op.f("ck_campaigns_state")),
        sa.CheckConstraint("spent <= budget", name=op.f("ck_campaigns_budget")),
        sa.ForeignKeyConstraint(["golden_set_id"], ["golden_sets.id"], name=op.f("fk_campaigns_golden_set_id")),
        sa.ForeignKeyConstraint(["line_id"], ["model_lines.id"], name=op.f("fk_campaigns_line_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_campaigns_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaigns")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_campaigns_project_id_name")),
    )
    op.create_index(op.f("ix_campaigns_project_id"), "campaigns", ["project_id"], unique=False)
    op.create_table(
        "selections",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("campaign_id", sa.Uuid(), nullable=False),
        sa.Column("model_version_id", sa.Uuid(), nullable=True),
        sa.Column("pool_size", sa.Integer(), nullable=False),
        sa.Column("candidates", sa.Integer(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaigns.id"], name=op.f("fk_selections_campaign_id")),
        sa.ForeignKeyConstraint(
            ["model_version_id"], ["model_versions.id"], name=op.f("fk_selections_model_version_id")
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_selections_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_selections")),
    )
    op.create_index(op.f("ix_selections_campaign_id"), "selections", ["campaign_id"], unique=False)
    op.create_index(op.f("ix_selections_project_id"), "selections", ["project_id"], unique=False)
    op.create_table(
        "label_tasks",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        sa.Column("ontology_id", sa.Uuid(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("heads", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("blind", sa.Boolean(), nullable=False),
        sa.Column("model_version_id", sa.Uuid(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("tool_project", sa.Integer(), nullable=True),
        sa.Column("tool_task", sa.Integer(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("done_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("state IN ('intended', 'open', 'done', 'cancelled')", name=op.f("ck_label_tasks_state")),
        sa.ForeignKeyConstraint(
            ["model_version_id"], ["model_versions.id"], name=op.f("fk_label_tasks_model_version_id")
        ),
        sa.ForeignKeyConstraint(["ontology_id"], ["ontologies.id"], name=op.f("fk_label_tasks_ontology_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_label_tasks_project_id")),
        sa.ForeignKeyConstraint(["subject_id"], ["subjects.id"], name=op.f("fk_label_tasks_subject_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_label_tasks")),
    )
    op.create_index(op.f("ix_label_tasks_project_id"), "label_tasks", ["project_id"], unique=False)
    op.create_index("ix_label_tasks_state", "label_tasks", ["project_id", "state"], unique=False)
    op.create_index(
        "uq_label_tasks_live",
        "label_tasks",
        ["subject_id", "ontology_id", "slot"],
        unique=True,
        postgresql_where=sa.text("state IN ('intended', 'open')"),
    )
    op.create_table(
        "labels",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        sa.Column("ontology_id", sa.Uuid(), nullable=False),
        sa.Column("head", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("superseded_by_id", sa.Uuid(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("value", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("array_blob_id", sa.Uuid(), nullable=True),
        sa.Column("annotated_classes", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("annotation_ids", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("content_sha256", sa.Text(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint(
            "source IN ('human', 'sensor', 'simulator', 'import', 'auto')", name=op.f("ck_labels_source")
        ),
        sa.ForeignKeyConstraint(["array_blob_id"], ["blobs.id"], name=op.f("fk_labels_array_blob_id")),
        sa.ForeignKeyConstraint(["ontology_id"], ["ontologies.id"], name=op.f("fk_labels_ontology_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_labels_project_id")),
        sa.ForeignKeyConstraint(["subject_id"], ["subjects.id"], name=op.f("fk_labels_subject_id")),
        sa.ForeignKeyConstraint(
            ["superseded_by_id"],
            ["labels.id"],
            name=op.f("fk_labels_superseded_by_id"),
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_labels")),
        sa.UniqueConstraint(
            "subject_id", "ontology_id", "head", "revision", name=op.f("uq_labels_subject_id_ontology_id_head_revision")
        ),
    )
    op.create_index("ix_labels_listing", "labels", ["project_id", "id"], unique=False)
    op.create_index(op.f("ix_labels_project_id"), "labels", ["project_id"], unique=False)
    op.create_index(
        "uq_labels_current",
        "labels",
        ["subject_id", "ontology_id", "head"],
        unique=True,
        postgresql_where=sa.text("superseded_by_id IS NULL"),
    )
    op.create_table(
        "annotations",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("task_id", sa.Uuid(), nullable=False),
        sa.Column("tool_annotation", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("payload_sha256", sa.Text(), nullable=False),
        sa.Column("annotator", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("lead_time_s", sa.Double(), nullable=True),
        sa.Column("prediction_shown", sa.Boolean(), nullable=False),
        sa.Column("heads_answered", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("classes_annotated", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("answers", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("payload", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("tool_updated_at", sa.Text(), nullable=False),
        sa.Column(
            "received_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("outcome IN ('submitted', 'skipped', 'unusable')", name=op.f("ck_annotations_outcome")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_annotations_project_id")),
        sa.ForeignKeyConstraint(["task_id"], ["label_tasks.id"], name=op.f("fk_annotations_task_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_annotations")),
        sa.UniqueConstraint(
            "project_id", "tool_annotation", "revision", name=op.f("uq_annotations_project_id_tool_annotation_revision")
        ),
    )
    op.create_index(op.f("ix_annotations_project_id"), "annotations", ["project_id"], unique=False)
    op.create_index("ix_annotations_task_id", "annotations", ["task_id"], unique=False)
    op.create_table(
        "queue_items",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("campaign_id", sa.Uuid(), nullable=False),
        sa.Column("selection_id", sa.Uuid(), nullable=False),
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        sa.Column("split", sa.Text(), server_default="pool", nullable=False),
        sa.Column("ontology_id", sa.Uuid(), nullable=False),
        sa.Column("model_version_id", sa.Uuid(), nullable=True),
        sa.Column("trigger_sha256", sa.Text(), nullable=False),
        sa.Column("arm", sa.Text(), nullable=False),
        sa.Column("inclusion_probability", sa.Float(precision=53), nullable=True),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("reason", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("heads", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("priority", sa.Float(precision=53), nullable=False),
        sa.Column("state", sa.Text(), server_default="queued", nullable=False),
        sa.Column("task_id", sa.Uuid(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column(
            "updated_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint(
            "arm <> 'control' OR inclusion_probability IS NOT NULL", name=op.f("ck_queue_items_control_probability")
        ),
        sa.CheckConstraint("arm IN ('chosen', 'control')", name=op.f("ck_queue_items_arm")),
        sa.CheckConstraint("split = 'pool'", name=op.f("ck_queue_items_split")),
        sa.CheckConstraint("state IN ('queued', 'open', 'labelled', 'dropped')", name=op.f("ck_queue_items_state")),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaigns.id"], name=op.f("fk_queue_items_campaign_id")),
        sa.ForeignKeyConstraint(
            ["model_version_id"], ["model_versions.id"], name=op.f("fk_queue_items_model_version_id")
        ),
        sa.ForeignKeyConstraint(["ontology_id"], ["ontologies.id"], name=op.f("fk_queue_items_ontology_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_queue_items_project_id")),
        sa.ForeignKeyConstraint(["selection_id"], ["selections.id"], name=op.f("fk_queue_items_selection_id")),
        sa.ForeignKeyConstraint(
            ["subject_id", "split"], ["subjects.id", "subjects.split"], name=op.f("fk_queue_items_subject_id_split")
        ),
        sa.ForeignKeyConstraint(["task_id"], ["label_tasks.id"], name=op.f("fk_queue_items_task_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_queue_items")),
        sa.UniqueConstraint("campaign_id", "subject_id", name=op.f("uq_queue_items_campaign_id_subject_id")),
    )
    op.create_index(
        "ix_queue_items_order",
        "queue_items",
        ["project_id", "state", sa.literal_column("priority DESC"), "id"],
        unique=False,
    )
    op.create_index(op.f("ix_queue_items_project_id"), "queue_items", ["project_id"], unique=False)
    op.create_index(op.f("ix_queue_items_selection_id"), "queue_items", ["selection_id"], unique=False)
    op.create_index("ix_queue_items_subject_id", "queue_items", ["subject_id"], unique=False)
    op.create_index(op.f("ix_queue_items_task_id"), "queue_items", ["task_id"], unique=False)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index(op.f("ix_queue_items_task_id"), table_name="queue_items")
    op.drop_index("ix_queue_items_subject_id", table_name="queue_items")
    op.drop_index(op.f("ix_queue_items_selection_id"), table_name="queue_items")
    op.drop_index(op.f("ix_queue_items_project_id"), table_name="queue_items")
    op.drop_index("ix_queue_items_order", table_name="queue_items")
    op.drop_table("queue_items")
    op.drop_index("ix_annotations_task_id", table_name="annotations")
    op.drop_index(op.f("ix_annotations_project_id"), table_name="annotations")
    op.drop_table("annotations")
    op.drop_index("uq_labels_current", table_name="labels", postgresql_where=sa.text("superseded_by_id IS NULL"))
    op.drop_index(op.f("ix_labels_project_id"), table_name="labels")
    op.drop_index("ix_labels_listing", table_name="labels")
    op.drop_table("labels")
    op.drop_index(
        "uq_label_tasks_live", table_name="label_tasks", postgresql_where=sa.text("state IN ('intended', 'open')")
    )
    op.drop_index("ix_label_tasks_state", table_name="label_tasks")
    op.drop_index(op.f("ix_label_tasks_project_id"), table_name="label_tasks")
    op.drop_table("label_tasks")
    op.drop_index(op.f("ix_selections_project_id"), table_name="selections")
    op.drop_index(op.f("ix_selections_campaign_id"), table_name="selections")
    op.drop_table("selections")
    op.drop_index(op.f("ix_campaigns_project_id"), table_name="campaigns")
    op.drop_table("campaigns")
    op.drop_index(op.f("ix_golden_sets_project_id"), table_name="golden_sets")
    op.drop_table("golden_sets")
    op.drop_index(op.f("ix_tool_projects_project_id"), table_name="tool_projects")
    op.drop_table("tool_projects")
