"""Ontologies, model lines, versions, runs and gate reports, as they are told and asked for."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from services.api.schemas.fields import JsonObject, Name, Posted, Seed, Text
from services.api.schemas.labels import OntologyRef


class Out(BaseModel):
    """What is told; our names may begin with `model_`."""

    model_config = ConfigDict(protected_namespaces=())


class HeadIn(Posted):
    """One task of the network. Without a metric, its kind's usual one."""

    name: Name
    kind: Name
    classes: list[Name] = Field(default_factory=list, max_length=1000)
    label_tool: Name = "person"
    metric: Name | None = None
    unit: Name | None = None
    options: JsonObject = Field(default_factory=dict)


class OntologyIn(Posted):
    """A new ontology version."""

    name: Name
    version: int = Field(ge=1, le=2**31 - 1)
    heads: list[HeadIn] = Field(min_length=1, max_length=256)


class OntologyOut(Out):
    """An ontology version."""

    id: uuid.UUID
    name: str
    version: int
    digest: str
    document: dict[str, Any]
    created_at: datetime


class LineIn(Posted):
    """A model line to be made."""

    name: Name
    ontology: OntologyRef
    settings: JsonObject = Field(default_factory=dict)


class LineOut(Out):
    """A model line and its champion."""

    id: uuid.UUID
    name: str
    ontology_id: uuid.UUID
    ontology: dict[str, Any]
    champion_id: uuid.UUID | None
    champion_number: int | None
    embedding_space_id: uuid.UUID | None
    selection_model_id: uuid.UUID | None
    settings: dict[str, Any]
    created_at: datetime


class RetrainIn(Posted):
    """Freeze what is labelled now and train on it. `target_heads`: where the challenger has to be better."""

    target_heads: list[Name] = Field(min_length=1, max_length=64)
    start: Literal["warm", "scratch"] = "warm"
    seed: Seed | None = None
    noise_seeds: list[Seed] = Field(default_factory=list, max_length=16)
    overrides: JsonObject = Field(default_factory=dict)


class RollbackIn(Posted):
    """Make an earlier champion the champion again: the one before, or version `to_number`."""

    reason: Text = Field(min_length=1)
    to_number: int | None = Field(None, ge=1, le=2**31 - 1)


class Moved(Out):
    """A champion that was moved."""

    promotion_id: uuid.UUID
    line: str
    from_number: int | None
    to_number: int
    rescored: int


class ArtifactOut(Out):
    """One form of a model version."""

    id: uuid.UUID
    format: str
    target: str
    sha256: str | None
    size_bytes: int
    config: dict[str, Any]


class ModelSummary(Out):
    """A model version in a list."""

    id: uuid.UUID
    line_id: uuid.UUID
    line: str
    number: int
    is_champion: bool
    origin: str
    run_id: uuid.UUID | None
    ontology_id: uuid.UUID
    heads: list[str]
    weights_sha256: str
    note: str | None
    created_by: str
    created_at: datetime


class ModelOut(ModelSummary):
    """A model version with its artifacts."""

    artifacts: list[ArtifactOut]


class WaiverIn(Posted):
    """A rule of the gate that the caller answers for; it is kept with the report. All but the first name a `head`."""

    name: Literal["within_one_drive", "retired_head", "unlearnt_head"]
    why: Text = Field(min_length=1)
    head: Name | None = None

    @model_validator(mode="after")
    def _names_its_head(self) -> Self:
        if self.head is None and self.name != "within_one_drive":
            raise ValueError(f"{self.name} is waived for one head: name it as `head`")
        return self


class JudgeIn(Posted):
    """`target_heads` are for models made elsewhere; the newest golden set of the line where none is named."""

    golden_set_id: uuid.UUID | None = None
    target_heads: list[Name] = Field(default_factory=list, max_length=64)
    waivers: list[WaiverIn] = Field(default_factory=list, max_length=64)


class PromoteIn(Posted):
    """Without waivers: by the newest report, which must have passed. With waivers: judged again under them first."""

    golden_set_id: uuid.UUID | None = None
    target_heads: list[Name] = Field(default_factory=list, max_length=64)
    waivers: list[WaiverIn] = Field(default_factory=list, max_length=64)


class RunOut(Out):
    """One training."""

    id: uuid.UUID
    line_id: uuid.UUID
    line: str
    dataset_version_id: uuid.UUID
    model_version_id: uuid.UUID | None
    purpose: str
    trainer: str
    start: str
    initial_model_id: uuid.UUID | None
    sampling: dict[str, Any]
    seed: int
    target_heads: list[str]
    plan: dict[str, Any]
    state: str
    progress: dict[str, Any]
    metrics: dict[str, Any]
    failure: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class GateReportSummary(Out):
    """A verdict in a list."""

    id: uuid.UUID
    line_id: uuid.UUID
    line: str
    challenger_id: uuid.UUID
    challenger_number: int
    champion_id: uuid.UUID | None
    golden_set_id: uuid.UUID
    golden_look: int
    target_heads: list[str]
    verdict: str
    reasons: list[Any]
    waiver: dict[str, Any] | None
    created_at: datetime


class GateReportOut(GateReportSummary):
    """The whole comparison."""

    challenger_weights_sha256: str
    report: dict[str, Any]
