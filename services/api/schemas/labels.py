"""Labels, dataset versions and golden sets, as they are told and sent."""

from __future__ import annotations

import base64
import binascii
import uuid
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from engine.stages.import_labels import LabelImport
from services.api.schemas.fields import JsonObject, Name, Posted, Pts


def decoded(value: Any) -> Any:
    """The bytes of base64 text."""
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"is not base64: {error}") from error


class OntologyRef(BaseModel):
    """An ontology version by its name."""

    name: Name
    version: int = Field(ge=1, le=2**31 - 1)


class LabelIn(Posted):
    """The answer for one head of one frame, in the canonical form of the head's kind."""

    clip: uuid.UUID
    stream: Name
    pts: Pts
    head: Name
    value: JsonObject
    array_base64: Annotated[bytes | None, BeforeValidator(decoded, json_schema_input_type=str | None)] = Field(
        None, description="For the dense kinds: an .npy file of float16, NaN where there is no value."
    )
    annotated_classes: list[Name] | None = Field(None, description="The classes that were looked for; null for all.")


class LabelsIn(Posted):
    """Labels of one source under one ontology version; all are taken or none."""

    ontology: OntologyRef
    source: Literal["sensor", "simulator", "import", "auto"]
    labels: list[LabelIn] = Field(min_length=1, max_length=5000)

    def to_domain(self) -> list[LabelImport]:
        """The labels in the engine's terms."""
        return [
            LabelImport(
                label.clip,
                label.stream,
                label.pts,
                label.head,
                label.value,
                label.array_base64,
                label.annotated_classes,
            )
            for label in self.labels
        ]


class LabelsImported(BaseModel):
    """How many labels are new, and how many changed nothing; ids in the order of the import."""

    created: int
    unchanged: int
    label_ids: list[uuid.UUID]


class LabelOut(BaseModel):
    """A label; `superseded_by_id` is null for the current one."""

    id: uuid.UUID
    subject_id: uuid.UUID
    clip_id: uuid.UUID
    stream: str | None
    pts: int | None
    ontology: dict[str, Any]
    head: str
    revision: int
    superseded_by_id: uuid.UUID | None
    source: str
    value: dict[str, Any]
    array_sha256: str | None
    annotated_classes: list[str] | None
    annotation_ids: list[str]
    content_sha256: str
    created_by: str
    created_at: datetime


class DatasetOut(BaseModel):
    """A dataset version."""

    id: uuid.UUID
    line_id: uuid.UUID
    line: str
    number: int
    ontology_id: uuid.UUID
    content_sha256: str
    header: dict[str, Any]
    counts: dict[str, Any]
    remaining_sha256: str | None
    """Set once rows were erased: the hash of what the manifest still holds."""
    erased: dict[str, Any] | None
    manifest_sha256: str
    created_at: datetime


class GoldenSetOut(BaseModel):
    """A golden set; `looks` counts how often a model was judged on it."""

    id: uuid.UUID
    name: str
    version: int
    line_id: uuid.UUID
    line: str
    ontology_id: uuid.UUID
    content_sha256: str
    remaining_sha256: str | None
    erased: dict[str, Any] | None
    subjects: int
    blind: bool
    looks: int
    created_at: datetime
