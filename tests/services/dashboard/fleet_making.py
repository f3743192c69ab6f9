"""What the makers of rows share: the session, the blobs, and what was made so far."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from sqlalchemy.orm import Session

from engine.adapters.blobs import LocalBlobStore
from engine.domain.ontology import Head, Kind, LabelTool, Ontology
from engine.store.blobs import register
from engine.store.tables.models import ModelLine
from engine.store.tables.recordings import Clip

NOW = datetime.now(UTC)

ONTOLOGY = Ontology(
    "driving",
    1,
    (
        Head("driveable", Kind.MASK, ("driveable",)),
        Head("lanes", Kind.POLYLINES, ("solid", "dashed")),
        Head("objects", Kind.BOXES, ("car", "truck", "pedestrian")),
        Head("signs", Kind.BOXES, ("stop", "limit")),
        Head("depth", Kind.DENSE_SCALAR, label_tool=LabelTool.MACHINE, unit="m"),
    ),
)
HEADS = [head.name for head in ONTOLOGY.heads]
WANTED = ["driveable", "lanes", "objects", "signs"]


@dataclass
class Fleet:
    """Ids of what was made, for tests to ask after."""

    project_id: uuid.UUID
    line_id: uuid.UUID
    model_ids: list[uuid.UUID] = field(default_factory=list)
    run_ids: list[uuid.UUID] = field(default_factory=list)
    dataset_ids: list[uuid.UUID] = field(default_factory=list)
    report_ids: list[uuid.UUID] = field(default_factory=list)
    clip_ids: list[uuid.UUID] = field(default_factory=list)
    item_ids: list[uuid.UUID] = field(default_factory=list)
    campaign_id: uuid.UUID | None = None
    dead_job_id: uuid.UUID | None = None
    schedule_ids: dict[str, uuid.UUID] = field(default_factory=dict)


@dataclass
class Making:
    """Rows in the making; `subjects` are (clip, frame, seed of its picture, place in the clip)."""

    session: Session
    blobs: LocalBlobStore
    fleet: Fleet
    line: ModelLine
    ontology_id: uuid.UUID
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))
    subjects: list[tuple[Clip, uuid.UUID, int, int]] = field(default_factory=list)
    golden: list[uuid.UUID] = field(default_factory=list)
    quantiles: dict[tuple[uuid.UUID, str], float] = field(default_factory=dict)

    @property
    def own(self) -> dict[str, Any]:
        return {"project_id": self.fleet.project_id}

    def add(self, row: Any) -> Any:
        self.session.add(row)
        self.session.flush()
        return row

    def blob(self, content: bytes, media_type: str) -> uuid.UUID:
        return register(self.session, self.fleet.project_id, self.blobs.put(content), media_type).id


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)
