"""sets runs and reports

Revision: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    # A migration that has to wait for a lock gives up instead of stopping everyone behind it.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "dataset_versions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("line_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("ontology_id", sa.Uuid(), nullable=False),
        sa.Column("content_sha256", sa.Text(), nullable=False),
        sa.Column("header", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("manifest_blob_id", sa.Uuid(), nullable=False),
        sa.Column("counts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["line_id"], ["model_lines.id"], name=op.f("fk_dataset_versions_line_id")),
        sa.ForeignKeyConstraint(["manifest_blob_id"], ["blobs.id"], name=op.f("fk_dataset_versions_manifest_blob_id")),
        sa.ForeignKeyConstraint(["ontology_id"], ["ontologies.id"], name=op.f("fk_dataset_versions_ontology_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_dataset_versions_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dataset_versions")),
        sa.UniqueConstraint("line_id", "content_sha256", name=op.f("uq_dataset_versions_line_id_content_sha256")),
        sa.UniqueConstraint("line_id", "number", name=op.f("uq_dataset_versions_line_id_number")),
    )
    op.create_index(op.f("ix_dataset_versions_project_id"), "dataset_versions", ["project_id"], unique=False)
    op.create_table(
        "gate_reports",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("line_id", sa.Uuid(), nullable=False),
        sa.Column("challenger_id", sa.Uuid(), nullable=False),
        sa.Column("challenger_weights_sha256", sa.Text(), nullable=False),
        sa.Column("champion_id", sa.Uuid(), nullable=True),
        sa.Column("golden_set_id", sa.Uuid(), nullable=False),
        sa.Column("golden_look", sa.Integer(), nullable=False),
        sa.Column("target_heads", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("reasons", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("waiver", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("report", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("verdict IN ('passed', 'refused')", name=op.f("ck_gate_reports_verdict")),
        sa.ForeignKeyConstraint(["challenger_id"], ["model_versions.id"], name=op.f("fk_gate_reports_challenger_id")),
        sa.ForeignKeyConstraint(["champion_id"], ["model_versions.id"], name=op.f("fk_gate_reports_champion_id")),
        sa.ForeignKeyConstraint(["golden_set_id"], ["golden_sets.id"], name=op.f("fk_gate_reports_golden_set_id")),
        sa.ForeignKeyConstraint(["line_id"], ["model_lines.id"], name=op.f("fk_gate_reports_line_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_gate_reports_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gate_reports")),
    )
    op.create_index(op.f("ix_gate_reports_challenger_id"), "gate_reports", ["challenger_id"], unique=False)
    op.create_index("ix_gate_reports_line_id", "gate_reports", ["line_id", "id"], unique=False)
    op.create_index(op.f("ix_gate_reports_project_id"), "gate_reports", ["project_id"], unique=False)
    op.create_table(
        "golden_evidence",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("model_version_id", sa.Uuid(), nullable=False),
        sa.Column("golden_set_id", sa.Uuid(), nullable=False),
        sa.Column("weights_sha256", sa.Text(), nullable=False),
        sa.Column("statistics_blob_id", sa.Uuid(), nullable=False),
        sa.Column("predictions_blob_id", sa.Uuid(), nullable=False),
        sa.Column("metrics", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["golden_set_id"], ["golden_sets.id"], name=op.f("fk_golden_evidence_golden_set_id")),
        sa.ForeignKeyConstraint(
            ["model_version_id"], ["model_versions.id"], name=op.f("fk_golden_evidence_model_version_id")
        ),
        sa.ForeignKeyConstraint(
            ["predictions_blob_id"], ["blobs.id"], name=op.f("fk_golden_evidence_predictions_blob_id")
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_golden_evidence_project_id")),
        sa.ForeignKeyConstraint(
            ["statistics_blob_id"], ["blobs.id"], name=op.f("fk_golden_evidence_statistics_blob_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_golden_evidence")),
        sa.UniqueConstraint(
            "model_version_id", "golden_set_id", name=op.f("uq_golden_evidence_model_version_id_golden_set_id")
        ),
    )
    op.create_index(op.f("ix_golden_evidence_project_id"), "golden_evidence", ["project_id"], unique=False)
    op.create_table(
        "runs",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("line_id", sa.Uuid(), nullable=False),
        sa.Column("dataset_version_id", sa.Uuid(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("trainer", sa.Text(), nullable=False),
        sa.Column("start", sa.Text(), nullable=False),
        sa.Column("initial_model_id", sa.Uuid(), nullable=True),
        sa.Column("sampling", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("target_heads", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("plan", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("progress", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("metrics", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("(start = 'warm') = (initial_model_id IS NOT NULL)", name=op.f("ck_runs_initial_model")),
        sa.CheckConstraint("purpose IN ('challenger', 'noise')", name=op.f("ck_runs_purpose")),
        sa.CheckConstraint("start IN ('scratch', 'warm')", name=op.f("ck_runs_start")),
        sa.CheckConstraint(
            "state IN ('due', 'running', 'finished', 'refused', 'cancelled')", name=op.f("ck_runs_state")
        ),
        sa.ForeignKeyConstraint(
            ["dataset_version_id"], ["dataset_versions.id"], name=op.f("fk_runs_dataset_version_id")
        ),
        sa.ForeignKeyConstraint(["initial_model_id"], ["model_versions.id"], name=op.f("fk_runs_initial_model_id")),
        sa.ForeignKeyConstraint(["line_id"], ["model_lines.id"], name=op.f("fk_runs_line_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_runs_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index(op.f("ix_runs_line_id"), "runs", ["line_id"], unique=False)
    op.create_index(op.f("ix_runs_project_id"), "runs", ["project_id"], unique=False)
    op.create_table(
        "seed_noise",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("line_id", sa.Uuid(), nullable=False),
        sa.Column("golden_set_id", sa.Uuid(), nullable=False),
        sa.Column("head", sa.Text(), nullable=False),
        sa.Column("model_version_ids", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("values", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "measured_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["golden_set_id"], ["golden_sets.id"], name=op.f("fk_seed_noise_golden_set_id")),
        sa.ForeignKeyConstraint(["line_id"], ["model_lines.id"], name=op.f("fk_seed_noise_line_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_seed_noise_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_seed_noise")),
        sa.UniqueConstraint("line_id", "golden_set_id", "head", name=op.f("uq_seed_noise_line_id_golden_set_id_head")),
    )
    op.create_index(op.f("ix_seed_noise_project_id"), "seed_noise", ["project_id"], unique=False)
    op.create_table(
        "promotions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("line_id", sa.Uuid(), nullable=False),
        sa.Column("act", sa.Text(), nullable=False),
        sa.Column("from_model_id", sa.Uuid(), nullable=True),
        sa.Column("to_model_id", sa.Uuid(), nullable=False),
        sa.Column("gate_report_id", sa.Uuid(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("act IN ('promote', 'rollback')", name=op.f("ck_promotions_act")),
        sa.ForeignKeyConstraint(["from_model_id"], ["model_versions.id"], name=op.f("fk_promotions_from_model_id")),
        sa.ForeignKeyConstraint(["gate_report_id"], ["gate_reports.id"], name=op.f("fk_promotions_gate_report_id")),
        sa.ForeignKeyConstraint(["line_id"], ["model_lines.id"], name=op.f("fk_promotions_line_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_promotions_project_id")),
        sa.ForeignKeyConstraint(["to_model_id"], ["model_versions.id"], name=op.f("fk_promotions_to_model_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_promotions")),
    )
    op.create_index(op.f("ix_promotions_line_id"), "promotions", ["line_id"], unique=False)
    op.create_index(op.f("ix_promotions_project_id"), "promotions", ["project_id"], unique=False)
    op.create_table(
        "dataset_subjects",
        sa.Column("dataset_version_id", sa.Uuid(), nullable=False),
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("split <> 'golden'", name=op.f("ck_dataset_subjects_never_golden")),
        sa.ForeignKeyConstraint(
            ["dataset_version_id"], ["dataset_versions.id"], name=op.f("fk_dataset_subjects_dataset_version_id")
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_dataset_subjects_project_id")),
        sa.ForeignKeyConstraint(
            ["subject_id", "split"],
            ["subjects.id", "subjects.split"],
            name=op.f("fk_dataset_subjects_subject_id_split"),
        ),
        sa.PrimaryKeyConstraint("dataset_version_id", "subject_id", name=op.f("pk_dataset_subjects")),
    )
    op.create_index(op.f("ix_dataset_subjects_project_id"), "dataset_subjects", ["project_id"], unique=False)
    op.create_index("ix_dataset_subjects_subject_id", "dataset_subjects", ["subject_id"], unique=False)
    op.create_table(
        "golden_subjects",
        sa.Column("golden_set_id", sa.Uuid(), nullable=False),
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("split = 'golden'", name=op.f("ck_golden_subjects_only_golden")),
        sa.ForeignKeyConstraint(["golden_set_id"], ["golden_sets.id"], name=op.f("fk_golden_subjects_golden_set_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_golden_subjects_project_id")),
        sa.ForeignKeyConstraint(
            ["subject_id", "split"], ["subjects.id", "subjects.split"], name=op.f("fk_golden_subjects_subject_id_split")
        ),
        sa.PrimaryKeyConstraint("golden_set_id", "subject_id", name=op.f("pk_golden_subjects")),
    )
    op.create_index(op.f("ix_golden_subjects_project_id"), "golden_subjects", ["project_id"], unique=False)
    op.create_table(
        "dataset_labels",
        sa.Column("dataset_version_id", sa.Uuid(), nullable=False),
        sa.Column("label_id", sa.Uuid(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset_version_id"], ["dataset_versions.id"], name=op.f("fk_dataset_labels_dataset_version_id")
        ),
        sa.ForeignKeyConstraint(["label_id"], ["labels.id"], name=op.f("fk_dataset_labels_label_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_dataset_labels_project_id")),
        sa.PrimaryKeyConstraint("dataset_version_id", "label_id", name=op.f("pk_dataset_labels")),
    )
    op.create_index(op.f("ix_dataset_labels_project_id"), "dataset_labels", ["project_id"], unique=False)
    op.create_foreign_key("fk_model_versions_run_id", "model_versions", "runs", ["run_id"], ["id"])


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_constraint("fk_model_versions_run_id", "model_versions", type_="foreignkey")
    op.drop_index(op.f("ix_dataset_labels_project_id"), table_name="dataset_labels")
    op.drop_table("dataset_labels")
    op.drop_index(op.f("ix_golden_subjects_project_id"), table_name="golden_subjects")
    op.drop_table("golden_subjects")
    op.drop_index("ix_dataset_subjects_subject_id", table_name="dataset_subjects")
    op.drop_index(op.f("ix_dataset_subjects_project_id"), table_name="dataset_subjects")
    op.drop_table("dataset_subjects")
    op.drop_index(op.f("ix_promotions_project_id"), table_name="promotions")
    op.drop_index(op.f("ix_promotions_line_id"), table_name="promotions")
    op.drop_table("promotions")
    op.drop_index(op.f("ix_seed_noise_project_id"), table_name="seed_noise")
    op.drop_table("seed_noise")
    op.drop_index(op.f("ix_runs_project_id"), table_name="runs")
    op.drop_index(op.f("ix_runs_line_id"), table_name="runs")
    op.drop_table("runs")
    op.drop_index(op.f("ix_golden_evidence_project_id"), table_name="golden_evidence")
    op.drop_table("golden_evidence")
    op.drop_index(op.f("ix_gate_reports_project_id"), table_name="gate_reports")
    op.drop_index("ix_gate_reports_line_id", table_name="gate_reports")
    op.drop_index(op.f("ix_gate_reports_challenger_id"), table_name="gate_reports")
    op.drop_table("gate_reports")
    op.drop_index(op.f("ix_dataset_versions_project_id"), table_name="dataset_versions")
    op.drop_table("dataset_versions")
