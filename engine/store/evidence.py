"""Golden evidence: per subject and head the statistics that every judgement of a model is made of."""

from __future__ import annotations

import json
import uuid
import zlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.store.manifests import canonical
from engine.store.tables.models import GoldenEvidence, ModelVersion, Run

MEDIA_TYPE = "application/zlib"

# By head, then by subject: named lists of numbers.
Statistics = Mapping[str, Mapping[str, Mapping[str, Any]]]


def pack(statistics: Statistics) -> bytes:
    """The statistics as a blob."""
    return zlib.compress(json.dumps(statistics, sort_keys=True, separators=(",", ":")).encode())


def unpack(data: bytes) -> dict[str, dict[str, dict[str, Any]]]:
    """The statistics of a blob made by `pack`."""
    unpacked: dict[str, dict[str, dict[str, Any]]] = json.loads(zlib.decompress(data))
    return unpacked


def evidence_of(session: Session, model_id: uuid.UUID, golden_set_id: uuid.UUID) -> GoldenEvidence | None:
    """What is on record of this model on this golden set."""
    return session.execute(
        select(GoldenEvidence).where(
            GoldenEvidence.model_version_id == model_id, GoldenEvidence.golden_set_id == golden_set_id
        )
    ).scalar_one_or_none()


def repeats(session: Session, line_id: uuid.UUID, golden_set_id: uuid.UUID) -> list[dict[str, dict[str, float]]]:
    """The runs that differ in nothing but their seed, as groups: each by model version's id its metrics by head.

    Groups of one are left out: they say nothing about noise.
    """
    rows = session.execute(
        select(Run, GoldenEvidence)
        .join(ModelVersion, ModelVersion.run_id == Run.id)
        .join(GoldenEvidence, GoldenEvidence.model_version_id == ModelVersion.id)
        .where(Run.line_id == line_id, GoldenEvidence.golden_set_id == golden_set_id)
        .order_by(Run.id)
    )
    groups: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    seeds: dict[str, set[int]] = defaultdict(set)
    for run, evidence in rows:
        setting = canonical(
            {
                "dataset": str(run.dataset_version_id),
                "start": run.start,
                "initial": str(run.initial_model_id),
                "sampling": run.sampling,
                "plan": run.plan,
                "trainer": run.trainer,
            }
        )
        if run.seed not in seeds[setting]:  # the same seed again is the same run, not another draw
            seeds[setting].add(run.seed)
            groups[setting][str(evidence.model_version_id)] = evidence.metrics
    return [group for group in groups.values() if len(group) > 1]
