"""Enrol: a scorer elsewhere becomes a version of its line, held to what it answers now to a few golden pictures."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.domain.formats import MEDIA_TYPES, ModelFormat
from engine.domain.refusals import Invalid
from engine.ports import BlobStore, RemoteScorer, ScorerUnavailable
from engine.stages.register import heads_of
from engine.store import audit
from engine.store.blobs import register, sha256_of
from engine.store.lines import add_model, line_by_name, ontology_of
from engine.store.manifests import by_subject, held_sha256, read
from engine.store.tables.labels import GoldenSet
from engine.store.tables.models import ModelLine, ModelVersion
from engine.store.unit_of_work import Database

PROBES = 3


def enrol_scorer(
    database: Database,
    blobs: BlobStore,
    project_id: uuid.UUID,
    line_name: str,
    config: Mapping[str, Any],
    note: str | None,
    scorer: RemoteScorer,
    actor: str,
) -> ModelVersion:
    """A new version of the line whose answers are a scorer's elsewhere; the gate judges it as any other.

    Its artifact, and so its hash, is the declaration with the scorer's answers to a few pictures of the line's newest
    golden set. Raises NotFound, and Invalid where there is no golden set or the scorer is not of the contract.
    """
    with database.read() as session:
        line = line_by_name(session, project_id, line_name)
        ontology = ontology_of(session, line.ontology_id)
        heads = heads_of(config, ontology)
        probes = _probes(session, blobs, line)
    if not probes:
        raise Invalid(
            "no-golden-set",
            f"line {line.name!r} has no golden set to hold a scorer elsewhere to",
            "label the golden drives and freeze them first",
        )
    try:
        document = scorer.enrol(config, [head for head in ontology.heads if head.name in heads], probes)
    except ScorerUnavailable as away:
        raise Invalid("scorer-unreachable", str(away), "start the scorer, and register it again") from away
    stored = blobs.put(document)
    with database.unit() as unit:
        blob = register(unit.session, project_id, stored, MEDIA_TYPES[ModelFormat.HTTP])
        model = add_model(
            unit.session,
            line,
            origin="registered",
            run_id=None,
            heads=heads,
            weights_blob_id=blob.id,
            weights_sha256=stored.sha256,
            config=dict(config),
            created_by=actor,
            note=note,
            format=ModelFormat.HTTP,
        )
        audit.note(
            unit.session, project_id, actor, "register", "model_version", model.id, {"weights_sha256": stored.sha256}
        )
        unit.commit()
    return model


def _probes(session: Session, blobs: BlobStore, line: ModelLine) -> list[str]:
    """The hashes of a few golden pictures, from all over the set."""
    golden = session.scalars(
        select(GoldenSet).where(GoldenSet.line_id == line.id).order_by(GoldenSet.id.desc()).limit(1)
    ).one_or_none()
    if golden is None:
        return []
    _, rows = read(blobs.read(sha256_of(session, golden.manifest_blob_id)), held_sha256(golden))
    pictures = sorted({labels[0].picture_sha256 for _, labels in by_subject(rows)})
    return pictures[:: max(1, -(-len(pictures) // PROBES))]
