"""Enrol: a scorer elsewhere becomes a version of its line, held to what it answers now to a few golden pictures."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from engine.domain.formats import ModelFormat
from engine.domain.refusals import Invalid
from engine.ports import BlobStore, RemoteScorer, ScorerUnavailable
from engine.stages.register import heads_of, record_registered
from engine.store.blobs import sha256_of
from engine.store.lines import line_by_name, newest_golden_set, ontology_of
from engine.store.manifests import by_subject, held_sha256, read
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
        model = record_registered(unit, line, ModelFormat.HTTP, stored, heads, config, note, actor)
        unit.commit()
    return model


def _probes(session: Session, blobs: BlobStore, line: ModelLine) -> list[str]:
    """The hashes of a few golden pictures, from all over the set."""
    golden = newest_golden_set(session, line.id)
    if golden is None:
        return []
    _, rows = read(blobs.read(sha256_of(session, golden.manifest_blob_id)), held_sha256(golden))
    pictures = sorted({labels[0].picture_sha256 for _, labels in by_subject(rows)})
    return pictures[:: max(1, -(-len(pictures) // PROBES))]
