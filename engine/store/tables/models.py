"""Models: lines, versions and what they say; runs that make them; reports that judge them."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from pgvector.sqlalchemy import Vector
from sqlalchemy import CheckConstraint, Float, ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from engine.store.tables.metadata import CreatedAt, Id, InProject, Table

EMBEDDING_DIMENSIONS = 128


class OntologyVersion(InProject, Table):
    """The heads, under a name and a version; never changed."""

    __tablename__ = "ontologies"
    __table_args__ = (UniqueConstraint("project_id", "name", "version"),)

    id: Mapped[Id]
    name: Mapped[str]
    version: Mapped[int]
    digest: Mapped[str]
    document: Mapped[dict[str, Any]]
    created_at: Mapped[CreatedAt]


class ModelLine(InProject, Table):
    """A line of models for one use; at most one of its versions is the champion."""

    __tablename__ = "model_lines"
    __table_args__ = (UniqueConstraint("project_id", "name"),)

    id: Mapped[Id]
    name: Mapped[str]
    ontology_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("ontologies.id"))
    champion_id: Mapped[uuid.UUID | None] = mapped_column(
        ForeignKey("model_versions.id", use_alter=True, name="fk_model_lines_champion_id")
    )
    embedding_space_id: Mapped[uuid.UUID | None] = mapped_column(
        ForeignKey("embedding_spaces.id", use_alter=True, name="fk_model_lines_embedding_space_id")
    )
    # The model version whose pool is complete: selection ranks by its scores alone, so ranks never mix versions.
    selection_model_id: Mapped[uuid.UUID | None] = mapped_column(
        ForeignKey("model_versions.id", use_alter=True, name="fk_model_lines_selection_model_id")
    )
    settings: Mapped[dict[str, Any]]
    created_at: Mapped[CreatedAt]


class ModelVersion(InProject, Table):
    """An artifact that ships and the lineage that made it."""

    __tablename__ = "model_versions"
    __table_args__ = (
        UniqueConstraint("line_id", "number"),
        CheckConstraint("origin IN ('trained', 'registered')", name="origin"),
    )

    id: Mapped[Id]
    line_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_lines.id"))
    number: Mapped[int]
    origin: Mapped[str]
    run_id: Mapped[uuid.UUID | None] = mapped_column(
        ForeignKey("runs.id", use_alter=True, name="fk_model_versions_run_id")
    )
    ontology_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("ontologies.id"))
    heads: Mapped[list[str]]
    weights_sha256: Mapped[str]
    # Per head the knots of the fixed reference that turn a raw uncertainty into a quantile.
    score_reference: Mapped[dict[str, Any] | None]
    note: Mapped[str | None]
    created_by: Mapped[str]
    created_at: Mapped[CreatedAt]


class ModelArtifact(InProject, Table):
    """One form of a model version, for one target."""

    __tablename__ = "model_artifacts"
    __table_args__ = (UniqueConstraint("model_version_id", "format", "target"),)

    id: Mapped[Id]
    model_version_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_versions.id"))
    format: Mapped[str]
    target: Mapped[str]
    blob_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("blobs.id"))
    config: Mapped[dict[str, Any]]
    digest: Mapped[str]


class EmbeddingSpace(InProject, Table):
    """A space of embeddings, pinned to one model version's trunk over several turns so that they compare."""

    __tablename__ = "embedding_spaces"
    __table_args__ = (UniqueConstraint("model_version_id"),)

    id: Mapped[Id]
    model_version_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_versions.id"))
    created_at: Mapped[CreatedAt]


class Scoring(InProject, Table):
    """What one model version said of one clip: predictions as one Arrow blob, scores as rows."""

    __tablename__ = "scorings"
    __table_args__ = (UniqueConstraint("clip_id", "model_version_id"),)

    id: Mapped[Id]
    clip_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("clips.id"))
    model_version_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_versions.id"), index=True)
    predictions_blob_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("blobs.id"), index=True)
    seconds: Mapped[float]
    created_at: Mapped[CreatedAt]


class Score(InProject, Table):
    """How unsure one model version is of one head of one subject."""

    __tablename__ = "scores"
    __table_args__ = (Index("ix_scores_subject_id", "subject_id"),)

    scoring_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("scorings.id"), primary_key=True)
    subject_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("subjects.id"), primary_key=True)
    head: Mapped[str] = mapped_column(primary_key=True)
    raw: Mapped[float] = mapped_column(Float(53))
    quantile: Mapped[float] = mapped_column(Float(53))


class Embedding(InProject, Table):
    """A subject's place in an embedding space: unit length."""

    __tablename__ = "embeddings"

    space_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("embedding_spaces.id"), primary_key=True)
    subject_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("subjects.id"), primary_key=True, index=True)
    vector: Mapped[Any] = mapped_column(Vector(EMBEDDING_DIMENSIONS))


class Run(InProject, Table):
    """One training."""

    __tablename__ = "runs"
    __table_args__ = (
        CheckConstraint("state IN ('due', 'running', 'finished', 'refused', 'cancelled')", name="state"),
        CheckConstraint("start IN ('scratch', 'warm')", name="start"),
        CheckConstraint("(start = 'warm') = (initial_model_id IS NOT NULL)", name="initial_model"),
        CheckConstraint("purpose IN ('challenger', 'noise')", name="purpose"),
    )

    id: Mapped[Id]
    line_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_lines.id"), index=True)
    dataset_version_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("dataset_versions.id"))
    # The freeze job that asked for it, if one did: its firing says which schedule that was.
    freeze_job_id: Mapped[uuid.UUID | None] = mapped_column(index=True)
    purpose: Mapped[str]  # a challenger, or a repeat with another seed that measures noise
    trainer: Mapped[str]
    start: Mapped[str]
    initial_model_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("model_versions.id"))
    sampling: Mapped[dict[str, Any]]
    seed: Mapped[int]
    # The heads on which the challenger has to be better, declared before it is trained.
    target_heads: Mapped[list[str]]
    plan: Mapped[dict[str, Any]]
    state: Mapped[str]
    progress: Mapped[dict[str, Any]]
    metrics: Mapped[dict[str, Any]]
    failure: Mapped[str | None]
    created_at: Mapped[CreatedAt]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class GoldenEvidence(InProject, Table):
    """What one model version said of a golden set: per subject the statistics that every judgement is made of."""

    __tablename__ = "golden_evidence"
    __table_args__ = (UniqueConstraint("model_version_id", "golden_set_id"),)

    id: Mapped[Id]
    model_version_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_versions.id"))
    golden_set_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("golden_sets.id"))
    weights_sha256: Mapped[str]
    statistics_blob_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("blobs.id"))
    predictions_blob_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("blobs.id"))
    metrics: Mapped[dict[str, Any]]
    created_at: Mapped[CreatedAt]


class SeedNoise(InProject, Table):
    """How much a head's metric varies between runs that differ in their seed alone: the gate's margins."""

    __tablename__ = "seed_noise"
    __table_args__ = (UniqueConstraint("line_id", "golden_set_id", "head"),)

    id: Mapped[Id]
    line_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_lines.id"))
    golden_set_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("golden_sets.id"))
    head: Mapped[str]
    model_version_ids: Mapped[list[str]]
    values: Mapped[list[Any]]
    measured_at: Mapped[CreatedAt]


class GateReport(InProject, Table):
    """The comparison of a challenger with the champion, and the verdict."""

    __tablename__ = "gate_reports"
    __table_args__ = (
        CheckConstraint("verdict IN ('passed', 'refused')", name="verdict"),
        Index("ix_gate_reports_line_id", "line_id", "id"),
    )

    id: Mapped[Id]
    line_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_lines.id"))
    challenger_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_versions.id"), index=True)
    challenger_weights_sha256: Mapped[str]
    champion_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("model_versions.id"))
    golden_set_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("golden_sets.id"))
    golden_look: Mapped[int]  # how many times this golden set had been looked at, this time included
    target_heads: Mapped[list[str]]
    verdict: Mapped[str]
    reasons: Mapped[list[Any]]
    waiver: Mapped[dict[str, Any] | None]
    report: Mapped[dict[str, Any]]
    created_at: Mapped[CreatedAt]


class Promotion(InProject, Table):
    """A move of a line's champion."""

    __tablename__ = "promotions"
    __table_args__ = (CheckConstraint("act IN ('promote', 'rollback')", name="act"),)

    id: Mapped[Id]
    line_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_lines.id"), index=True)
    act: Mapped[str]
    from_model_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("model_versions.id"))
    to_model_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_versions.id"))
    gate_report_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("gate_reports.id"))
    actor: Mapped[str]
    reason: Mapped[str | None]
    at: Mapped[CreatedAt]
