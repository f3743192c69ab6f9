"""Choosing and labelling: campaigns, the queue, tasks in the label tool, annotations, labels, and sets of them."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from engine.store.tables.metadata import CreatedAt, Id, InProject, Table


class Campaign(InProject, Table):
    """Triggers, a budget, the heads wanted and a priority. Its row is locked while a selection is recorded."""

    __tablename__ = "campaigns"
    __table_args__ = (
        UniqueConstraint("project_id", "name"),
        CheckConstraint("state IN ('active', 'paused', 'ended')", name="state"),
        CheckConstraint("spent <= budget", name="budget"),
    )

    id: Mapped[Id]
    name: Mapped[str]
    line_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_lines.id"))
    state: Mapped[str]
    triggers: Mapped[list[Any]]
    trigger_sha256: Mapped[str]
    heads: Mapped[list[str]]
    budget: Mapped[int]
    spent: Mapped[int] = mapped_column(server_default="0")
    batch_size: Mapped[int]
    control_fraction: Mapped[float] = mapped_column(Float(53))
    priority: Mapped[int]
    seed: Mapped[int]
    settings: Mapped[dict[str, Any]]
    golden_set_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("golden_sets.id"))  # its own regression set
    created_at: Mapped[CreatedAt]


class Selection(InProject, Table):
    """One time that a campaign chose: what it chose from, by which model version's scores."""

    __tablename__ = "selections"

    id: Mapped[Id]
    campaign_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("campaigns.id"), index=True)
    model_version_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("model_versions.id"))
    pool_size: Mapped[int]
    candidates: Mapped[int]
    seed: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[CreatedAt]


class QueueItem(InProject, Table):
    """A subject that a campaign wants labelled, and why."""

    __tablename__ = "queue_items"
    __table_args__ = (
        UniqueConstraint("campaign_id", "subject_id"),
        ForeignKeyConstraint(["subject_id", "split"], ["subjects.id", "subjects.split"]),
        CheckConstraint("split = 'pool'", name="split"),
        CheckConstraint("arm IN ('chosen', 'control')", name="arm"),
        CheckConstraint("state IN ('queued', 'open', 'labelled', 'dropped')", name="state"),
        CheckConstraint("arm <> 'control' OR inclusion_probability IS NOT NULL", name="control_probability"),
        Index("ix_queue_items_order", "project_id", "state", text("priority DESC"), "id"),
        Index("ix_queue_items_subject_id", "subject_id"),
    )

    id: Mapped[Id]
    campaign_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("campaigns.id"))
    selection_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("selections.id"), index=True)
    subject_id: Mapped[uuid.UUID]
    split: Mapped[str] = mapped_column(server_default="pool")
    ontology_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("ontologies.id"))
    model_version_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("model_versions.id"))
    trigger_sha256: Mapped[str]
    arm: Mapped[str]
    inclusion_probability: Mapped[float | None] = mapped_column(Float(53))
    seed: Mapped[int] = mapped_column(BigInteger)
    reason: Mapped[dict[str, Any]]
    heads: Mapped[list[str]]
    priority: Mapped[float] = mapped_column(Float(53))
    state: Mapped[str] = mapped_column(server_default="queued")
    task_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("label_tasks.id"), index=True)
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[CreatedAt]


class ToolProject(InProject, Table):
    """The label tool's project for an ontology version, and how far its annotations have been collected."""

    __tablename__ = "tool_projects"
    __table_args__ = (UniqueConstraint("project_id", "ontology_id"),)

    id: Mapped[Id]
    ontology_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("ontologies.id"))
    tool_project: Mapped[int]
    collected_until: Mapped[str | None]  # the tool's own clock, as it wrote it


class LabelTask(InProject, Table):
    """A task in the label tool. The row is the intent, committed first; its id is the key in the task's data."""

    __tablename__ = "label_tasks"
    __table_args__ = (
        CheckConstraint("state IN ('intended', 'open', 'done', 'cancelled')", name="state"),
        # One live task per (subject, ontology version, slot), whatever is retried or dies.
        Index(
            "uq_label_tasks_live",
            "subject_id",
            "ontology_id",
            "slot",
            unique=True,
            postgresql_where=text("state IN ('intended', 'open')"),
        ),
        Index("ix_label_tasks_state", "project_id", "state"),
        Index("ix_label_tasks_subject_id", "subject_id"),
    )

    id: Mapped[Id]
    subject_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("subjects.id"))
    ontology_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("ontologies.id"))
    slot: Mapped[int]
    heads: Mapped[list[str]]
    blind: Mapped[bool]
    model_version_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("model_versions.id"))
    state: Mapped[str]
    tool_project: Mapped[int | None]
    tool_task: Mapped[int | None]
    created_at: Mapped[CreatedAt]
    opened_at: Mapped[datetime | None]
    done_at: Mapped[datetime | None]


class Annotation(InProject, Table):
    """What one person said, as received: each revision a row."""

    __tablename__ = "annotations"
    __table_args__ = (
        UniqueConstraint("project_id", "tool_annotation", "revision"),
        CheckConstraint("outcome IN ('submitted', 'skipped', 'unusable')", name="outcome"),
        Index("ix_annotations_task_id", "task_id"),
    )

    id: Mapped[Id]
    task_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("label_tasks.id"))
    tool_annotation: Mapped[int]
    revision: Mapped[int]
    payload_sha256: Mapped[str]
    annotator: Mapped[str]
    outcome: Mapped[str]
    lead_time_s: Mapped[float | None]
    prediction_shown: Mapped[bool]
    heads_answered: Mapped[list[str]]
    classes_annotated: Mapped[dict[str, Any]]
    answers: Mapped[dict[str, Any]]
    payload: Mapped[dict[str, Any]]
    problem: Mapped[str | None]
    tool_updated_at: Mapped[str]
    received_at: Mapped[CreatedAt]
    deleted_at: Mapped[datetime | None]


class Label(InProject, Table):
    """The accepted answer for one head of one subject, under one ontology version."""

    __tablename__ = "labels"
    __table_args__ = (
        UniqueConstraint("subject_id", "ontology_id", "head", "revision"),
        Index(
            "uq_labels_current",
            "subject_id",
            "ontology_id",
            "head",
            unique=True,
            postgresql_where=text("superseded_by_id IS NULL"),
        ),
        CheckConstraint("source IN ('human', 'sensor', 'simulator', 'import', 'auto')", name="source"),
        Index("ix_labels_listing", "project_id", "id"),
        Index("ix_labels_array_blob_id", "array_blob_id", postgresql_where=text("array_blob_id IS NOT NULL")),
        Index("ix_labels_superseded_by_id", "superseded_by_id", postgresql_where=text("superseded_by_id IS NOT NULL")),
    )

    id: Mapped[Id]
    subject_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("subjects.id"))
    ontology_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("ontologies.id"))
    head: Mapped[str]
    revision: Mapped[int]
    superseded_by_id: Mapped[uuid.UUID | None] = mapped_column(
        ForeignKey("labels.id", deferrable=True, initially="DEFERRED")
    )
    source: Mapped[str]
    value: Mapped[dict[str, Any]]  # canonical form; objects keep their ids from revision to revision
    array_blob_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("blobs.id"))
    annotated_classes: Mapped[list[str] | None]  # none: all of the head's classes were looked for
    annotation_ids: Mapped[list[str]]
    content_sha256: Mapped[str]
    created_by: Mapped[str]
    created_at: Mapped[CreatedAt]


class DatasetVersion(InProject, Table):
    """An immutable, content-hashed manifest of labelled subjects."""

    __tablename__ = "dataset_versions"
    __table_args__ = (UniqueConstraint("line_id", "number"), UniqueConstraint("line_id", "content_sha256"))

    id: Mapped[Id]
    line_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_lines.id"))
    number: Mapped[int]
    ontology_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("ontologies.id"))
    content_sha256: Mapped[str]
    header: Mapped[dict[str, Any]]
    manifest_blob_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("blobs.id"))
    # Set once rows were erased: the hash of what is left. `content_sha256` and `counts` stay what was frozen.
    remaining_sha256: Mapped[str | None]
    erased: Mapped[dict[str, Any] | None]
    counts: Mapped[dict[str, Any]]
    created_at: Mapped[CreatedAt]


class DatasetSubject(InProject, Table):
    """A subject of a dataset version. The composite key and the check refuse golden, whoever writes the row."""

    __tablename__ = "dataset_subjects"
    __table_args__ = (
        ForeignKeyConstraint(["subject_id", "split"], ["subjects.id", "subjects.split"]),
        CheckConstraint("split <> 'golden'", name="never_golden"),
        Index("ix_dataset_subjects_subject_id", "subject_id"),
    )

    dataset_version_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("dataset_versions.id"), primary_key=True)
    subject_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    split: Mapped[str]


class DatasetLabel(InProject, Table):
    """A label that a dataset version holds: the lineage from a model back to who said what."""

    __tablename__ = "dataset_labels"

    dataset_version_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("dataset_versions.id"), primary_key=True)
    label_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("labels.id"), primary_key=True, index=True)


class GoldenSet(InProject, Table):
    """Frozen, blindly labelled subjects that are never trained on; gates are judged on them."""

    __tablename__ = "golden_sets"
    __table_args__ = (UniqueConstraint("project_id", "name", "version"),)

    id: Mapped[Id]
    name: Mapped[str]
    version: Mapped[int]
    line_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("model_lines.id"))
    ontology_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("ontologies.id"))
    content_sha256: Mapped[str]
    header: Mapped[dict[str, Any]]
    manifest_blob_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("blobs.id"))
    remaining_sha256: Mapped[str | None]
    erased: Mapped[dict[str, Any] | None]
    blind: Mapped[bool]
    looks: Mapped[int] = mapped_column(server_default="0")
    created_at: Mapped[CreatedAt]


class GoldenSubject(InProject, Table):
    """A subject of a golden set; the check refuses the pool."""

    __tablename__ = "golden_subjects"
    __table_args__ = (
        ForeignKeyConstraint(["subject_id", "split"], ["subjects.id", "subjects.split"]),
        CheckConstraint("split = 'golden'", name="only_golden"),
        Index("ix_golden_subjects_subject_id", "subject_id"),
    )

    golden_set_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("golden_sets.id"), primary_key=True)
    subject_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    split: Mapped[str]
