"""Register: ontologies, model lines, and models that were made elsewhere."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from engine.domain.formats import MEDIA_TYPES, ModelFormat
from engine.domain.ontology import Ontology
from engine.domain.refusals import Conflict, Invalid, NotFound
from engine.ports import ModelCheck, ModelFiles, StoredBlob
from engine.stages.train import refuse_commands
from engine.store import audit
from engine.store.blobs import register
from engine.store.lines import add_model, add_ontology, line_by_name, ontology_of
from engine.store.tables.metadata import new_id
from engine.store.tables.models import ModelLine, ModelVersion, OntologyVersion
from engine.store.unit_of_work import Database, UnitOfWork


class WeightsFile(Protocol):
    """Weights that have arrived whole and are not yet in the blob store."""

    @property
    def path(self) -> Path: ...

    def commit(self) -> StoredBlob:
        """Durable in the blob store on return."""


def register_ontology(unit: UnitOfWork, project_id: uuid.UUID, document: Mapping[str, Any]) -> OntologyVersion:
    """The ontology version; the same again is the same. Raises OntologyError, Conflict when it would change one."""
    return add_ontology(unit.session, project_id, Ontology.from_document(document))


def make_line(
    unit: UnitOfWork,
    project_id: uuid.UUID,
    name: str,
    ontology_name: str,
    ontology_version: int,
    settings: Mapping[str, Any],
    actor: str,
) -> ModelLine:
    """A new model line, without a champion. Raises NotFound, Conflict, Invalid."""
    training = settings.get("training", {})
    if isinstance(training, Mapping):
        refuse_commands(training)
    ontology_id = unit.session.execute(
        select(OntologyVersion.id).where(
            OntologyVersion.project_id == project_id,
            OntologyVersion.name == ontology_name,
            OntologyVersion.version == ontology_version,
        )
    ).scalar_one_or_none()
    if ontology_id is None:
        raise NotFound(
            "no-such-ontology",
            f"there is no ontology {ontology_name!r} version {ontology_version}",
            "register it with POST /v1/ontologies",
        )
    line = ModelLine(id=new_id(), project_id=project_id, name=name, ontology_id=ontology_id, settings=dict(settings))
    unit.session.add(line)
    try:
        unit.session.flush()
    except IntegrityError as error:
        raise Conflict("name-taken", f"there is a model line {name!r} already", "choose another name") from error
    audit.note(unit.session, project_id, actor, "make", "model_line", line.id, {"name": name})
    return line


def ensure_line(
    unit: UnitOfWork,
    project_id: uuid.UUID,
    name: str,
    ontology_name: str,
    ontology_version: int,
    settings: Mapping[str, Any],
    actor: str,
) -> ModelLine:
    """The line of this name, made where there is none; one that is there keeps its settings. Raises NotFound."""
    found = unit.session.scalars(
        select(ModelLine).where(ModelLine.project_id == project_id, ModelLine.name == name)
    ).one_or_none()
    return found or make_line(unit, project_id, name, ontology_name, ontology_version, settings, actor)


def register_model(
    database: Database,
    project_id: uuid.UUID,
    line_name: str,
    format: str,
    weights: WeightsFile,
    config: Mapping[str, Any],
    note: str | None,
    check: ModelCheck,
    actor: str,
) -> ModelVersion:
    """A new version of the line from an artifact that was made elsewhere; the gate judges it as any other.

    Raises NotFound, Invalid. What is refused is not committed to the blob store.
    """
    with database.read() as session:
        line = line_by_name(session, project_id, line_name)
        ontology = ontology_of(session, line.ontology_id)
    heads = heads_of(config, ontology)
    check.check(ModelFiles(format, weights.path, config, heads=[h for h in ontology.heads if h.name in heads]))
    stored = weights.commit()
    with database.unit() as unit:
        model = record_registered(unit, line, ModelFormat(format), stored, heads, config, note, actor)
        unit.commit()
    return model


def record_registered(
    unit: UnitOfWork,
    line: ModelLine,
    format: ModelFormat,
    stored: StoredBlob,
    heads: list[str],
    config: Mapping[str, Any],
    note: str | None,
    actor: str,
) -> ModelVersion:
    """The row of a version that was made elsewhere, with its blob and its audit, in the caller's transaction."""
    blob = register(unit.session, line.project_id, stored, MEDIA_TYPES[format])
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
        format=format,
    )
    details = {"weights_sha256": stored.sha256}
    audit.note(unit.session, line.project_id, actor, "register", "model_version", model.id, details)
    return model


def heads_of(config: Mapping[str, Any], ontology: Ontology) -> list[str]:
    """The names of the heads that the model's config lists. Raises Invalid unless they are the ontology's."""
    listed = config.get("heads")
    named = (
        [head.get("name") if isinstance(head, Mapping) else head for head in listed] if isinstance(listed, list) else []
    )
    names = [str(name) for name in named]
    known = {head.name for head in ontology.heads}
    strange = [name for name in names if name not in known]
    if not names or strange or len(set(names)) != len(names):
        raise Invalid(
            "invalid-config",
            f"the config names the head {strange[0]!r}, which the line's ontology does not have"
            if strange
            else "the config must list the model's `heads`, each once",
            f"heads are: {', '.join(sorted(known))}",
        )
    return names
