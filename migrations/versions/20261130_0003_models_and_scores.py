"""models and scores

Revision: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op
from pgvector.sqlalchemy import Vector
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    # A migration that has to wait for a lock gives up instead of stopping everyone behind it.
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "ontologies",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("document", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_ontologies_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ontologies")),
        sa.UniqueConstraint("project_id", "name", "version", name=op.f("uq_ontologies_project_id_name_version")),
    )
    op.create_index(op.f("ix_ontologies_project_id"), "ontologies", ["project_id"], unique=False)
    op.create_table(
        "model_lines",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ontology_id", sa.Uuid(), nullable=False),
        sa.Column("champion_id", sa.Uuid(), nullable=True),
        sa.Column("embedding_space_id", sa.Uuid(), nullable=True),
        sa.Column("selection_model_id", sa.Uuid(), nullable=True),
        sa.Column("settings", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["ontology_id"], ["ontologies.id"], name=op.f("fk_model_lines_ontology_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_model_lines_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_lines")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_model_lines_project_id_name")),
    )
    op.create_index(op.f("ix_model_lines_project_id"), "model_lines", ["project_id"], unique=False)
    op.create_table(
        "model_versions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("line_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Uuid(), nullable=True),
        sa.Column("ontology_id", sa.Uuid(), nullable=False),
        sa.Column("heads", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("weights_sha256", sa.Text(), nullable=False),
        sa.Column("score_reference", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.CheckConstraint("origin IN ('trained', 'registered')", name=op.f("ck_model_versions_origin")),
        sa.ForeignKeyConstraint(["line_id"], ["model_lines.id"], name=op.f("fk_model_versions_line_id")),
        sa.ForeignKeyConstraint(["ontology_id"], ["ontologies.id"], name=op.f("fk_model_versions_ontology_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_model_versions_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_versions")),
        sa.UniqueConstraint("line_id", "number", name=op.f("uq_model_versions_line_id_number")),
    )
    op.create_index(op.f("ix_model_versions_project_id"), "model_versions", ["project_id"], unique=False)
    op.create_table(
        "embedding_spaces",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("model_version_id", sa.Uuid(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_version_id"], ["model_versions.id"], name=op.f("fk_embedding_spaces_model_version_id")
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_embedding_spaces_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_embedding_spaces")),
        sa.UniqueConstraint("model_version_id", name=op.f("uq_embedding_spaces_model_version_id")),
    )
    op.create_index(op.f("ix_embedding_spaces_project_id"), "embedding_spaces", ["project_id"], unique=False)
    op.create_table(
        "model_artifacts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("model_version_id", sa.Uuid(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("blob_id", sa.Uuid(), nullable=False),
        sa.Column("config", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["blob_id"], ["blobs.id"], name=op.f("fk_model_artifacts_blob_id")),
        sa.ForeignKeyConstraint(
            ["model_version_id"], ["model_versions.id"], name=op.f("fk_model_artifacts_model_version_id")
        ),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_model_artifacts_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_artifacts")),
        sa.UniqueConstraint(
            "model_version_id", "format", "target", name=op.f("uq_model_artifacts_model_version_id_format_target")
        ),
    )
    op.create_index(op.f("ix_model_artifacts_project_id"), "model_artifacts", ["project_id"], unique=False)
    op.create_table(
        "scorings",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("clip_id", sa.Uuid(), nullable=False),
        sa.Column("model_version_id", sa.Uuid(), nullable=False),
        sa.Column("predictions_blob_id", sa.Uuid(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column(
            "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
        ),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["clip_id"], ["clips.id"], name=op.f("fk_scorings_clip_id")),
        sa.ForeignKeyConstraint(["model_version_id"], ["model_versions.id"], name=op.f("fk_scorings_model_version_id")),
        sa.ForeignKeyConstraint(["predictions_blob_id"], ["blobs.id"], name=op.f("fk_scorings_predictions_blob_id")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_scorings_project_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scorings")),
        sa.UniqueConstraint("clip_id", "model_version_id", name=op.f("uq_scorings_clip_id_model_version_id")),
    )
    op.create_index(op.f("ix_scorings_model_version_id"), "scorings", ["model_version_id"], unique=False)
    op.create_index(op.f("ix_scorings_project_id"), "scorings", ["project_id"], unique=False)
    op.create_table(
        "embeddings",
        sa.Column("space_id", sa.Uuid(), nullable=False),
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        sa.Column("vector", Vector(dim=128), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_embeddings_project_id")),
        sa.ForeignKeyConstraint(["space_id"], ["embedding_spaces.id"], name=op.f("fk_embeddings_space_id")),
        sa.ForeignKeyConstraint(["subject_id"], ["subjects.id"], name=op.f("fk_embeddings_subject_id")),
        sa.PrimaryKeyConstraint("space_id", "subject_id", name=op.f("pk_embeddings")),
    )
    op.create_index(op.f("ix_embeddings_project_id"), "embeddings", ["project_id"], unique=False)
    op.create_table(
        "scores",
        sa.Column("scoring_id", sa.Uuid(), nullable=False),
        sa.Column("subject_id", sa.Uuid(), nullable=False),
        sa.Column("head", sa.Text(), nullable=False),
        sa.Column("raw", sa.Float(precision=53), nullable=False),
        sa.Column("quantile", sa.Float(precision=53), nullable=False),
        sa.Column("project_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_scores_project_id")),
        sa.ForeignKeyConstraint(["scoring_id"], ["scorings.id"], name=op.f("fk_scores_scoring_id")),
        sa.ForeignKeyConstraint(["subject_id"], ["subjects.id"], name=op.f("fk_scores_subject_id")),
        sa.PrimaryKeyConstraint("scoring_id", "subject_id", "head", name=op.f("pk_scores")),
    )
    op.create_index(op.f("ix_scores_project_id"), "scores", ["project_id"], unique=False)
    op.create_index("ix_scores_subject_id", "scores", ["subject_id"], unique=False)
    op.create_foreign_key("fk_model_lines_champion_id", "model_lines", "model_versions", ["champion_id"], ["id"])
    op.create_foreign_key(
        "fk_model_lines_selection_model_id", "model_lines", "model_versions", ["selection_model_id"], ["id"]
    )
    op.create_foreign_key(
        "fk_model_lines_embedding_space_id", "model_lines", "embedding_spaces", ["embedding_space_id"], ["id"]
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_constraint("fk_model_lines_champion_id", "model_lines", type_="foreignkey")
    op.drop_constraint("fk_model_lines_selection_model_id", "model_lines", type_="foreignkey")
    op.drop_constraint("fk_model_lines_embedding_space_id", "model_lines", type_="foreignkey")
    op.drop_index("ix_scores_subject_id", table_name="scores")
    op.drop_index(op.f("ix_scores_project_id"), table_name="scores")
    op.drop_table("scores")
    op.drop_index(op.f("ix_embeddings_project_id"), table_name="embeddings")
    op.drop_table("embeddings")
    op.drop_index(op.f("ix_scorings_project_id"), table_name="scorings")
    op.drop_index(op.f("ix_scorings_model_version_id"), table_name="scorings")
    op.drop_table("scorings")
    op.drop_index(op.f("ix_model_artifacts_project_id"), table_name="model_artifacts")
    op.drop_table("model_artifacts")
    op.drop_index(op.f("ix_embedding_spaces_project_id"), table_name="embedding_spaces")
    op.drop_table("embedding_spaces")
    op.drop_index(op.f("ix_model_versions_project_id"), table_name="model_versions")
    op.drop_table("model_versions")
    op.drop_index(op.f("ix_model_lines_project_id"), table_name="model_lines")
    op.drop_table("model_lines")
    op.drop_index(op.f("ix_ontologies_project_id"), table_name="ontologies")
    op.drop_table("ontologies")
