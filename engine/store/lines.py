"""Model lines, their ontologies, and the model versions and artifacts of a line."""

from __future__ import annotations

import uuid
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from engine.domain.formats import ModelFormat
from engine.domain.ontology import Ontology
from engine.domain.refusals import Conflict, NotFound
from engine.ports import BlobStore, ModelFiles
from engine.store.blobs import sha256_of
from engine.store.tables.labels import GoldenSet
from engine.store.tables.metadata import new_id
from engine.store.tables.models import ModelArtifact, ModelLine, ModelVersion, OntologyVersion


def line_by_name(session: Session, project_id: uuid.UUID, name: str) -> ModelLine:
    line = session.execute(
        select(ModelLine).where(ModelLine.project_id == project_id, ModelLine.name == name)
    ).scalar_one_or_none()
    if line is None:
        names = session.scalars(select(ModelLine.name).where(ModelLine.project_id == project_id)).all()
        raise NotFound(
            "no-such-line", f"there is no model line {name!r}", f"there are: {', '.join(names) or 'none yet; make one'}"
        )
    return line


def get_line(session: Session, line_id: uuid.UUID, lock: bool = False) -> ModelLine:
    """The line; `lock` holds its row until the transaction ends."""
    line = session.get(ModelLine, line_id, with_for_update=lock, populate_existing=lock)
    if line is None:
        raise NotFound("no-such-line", f"there is no model line {line_id}", "list them with GET /v1/lines")
    return line


def get_model(session: Session, model_id: uuid.UUID) -> ModelVersion:
    model = session.get(ModelVersion, model_id)
    if model is None:
        raise NotFound("no-such-model", f"there is no model version {model_id}", "list them with GET /v1/models")
    return model


def ontology_of(session: Session, ontology_id: uuid.UUID) -> Ontology:
    """The ontology as a domain object."""
    return Ontology.from_document(session.get_one(OntologyVersion, ontology_id).document)


def lock_ontology(session: Session, ontology_id: uuid.UUID) -> None:
    """Hold the ontology's row until the transaction ends. Rows that point to it can still be written by others."""
    session.execute(select(OntologyVersion.id).where(OntologyVersion.id == ontology_id).with_for_update(key_share=True))


def add_ontology(session: Session, project_id: uuid.UUID, ontology: Ontology) -> OntologyVersion:
    """The row of this ontology version; the same again is the same row. Raises Conflict when it would change one."""
    found = session.execute(
        select(OntologyVersion).where(
            OntologyVersion.project_id == project_id,
            OntologyVersion.name == ontology.name,
            OntologyVersion.version == ontology.version,
        )
    ).scalar_one_or_none()
    if found is not None:
        if found.digest != ontology.digest:
            raise Conflict(
                "ontology-exists",
                f"ontology {ontology.name!r} version {ontology.version} exists and says something else",
                "give the changed one a new version",
            )
        return found
    row = OntologyVersion(
        id=new_id(),
        project_id=project_id,
        name=ontology.name,
        version=ontology.version,
        digest=ontology.digest,
        document=ontology.to_document(),
    )
    session.add(row)
    session.flush()
    return row


def add_model(
    session: Session,
    line: ModelLine,
    *,
    origin: str,
    run_id: uuid.UUID | None,
    heads: list[str],
    weights_blob_id: uuid.UUID,
    weights_sha256: str,
    config: dict[str, object],
    created_by: str,
    note: str | None = None,
    format: str = ModelFormat.HYDRANET,
) -> ModelVersion:
    """A new version of the line with its artifact; the line's row is locked, so that numbers have no gap or double."""
    get_line(session, line.id, lock=True)
    last = session.scalar(select(func.max(ModelVersion.number)).where(ModelVersion.line_id == line.id)) or 0
    model = ModelVersion(
        id=new_id(),
        project_id=line.project_id,
        line_id=line.id,
        number=last + 1,
        origin=origin,
        run_id=run_id,
        ontology_id=line.ontology_id,
        heads=heads,
        weights_sha256=weights_sha256,
        note=note,
        created_by=created_by,
    )
    session.add(model)
    session.flush()
    session.add(
        ModelArtifact(
            id=new_id(),
            project_id=line.project_id,
            model_version_id=model.id,
            format=format,
            target="any",
            blob_id=weights_blob_id,
            config=config,
            digest=weights_sha256,
        )
    )
    session.flush()
    return model


def artifact_of(session: Session, model_id: uuid.UUID) -> ModelArtifact:
    """The artifact that ships."""
    return session.execute(
        select(ModelArtifact).where(ModelArtifact.model_version_id == model_id)
    ).scalars().first() or (_no_artifact(model_id))


def model_files(session: Session, blobs: BlobStore, model_id: uuid.UUID) -> ModelFiles:
    """The artifact on this machine's disk, its bytes verified against the digest that the gate judged.

    Raises NotFound, Conflict when it points to other bytes, BlobCorrupt when they are no longer what they were.
    """
    artifact = artifact_of(session, model_id)
    sha256 = sha256_of(session, artifact.blob_id)
    if sha256 != artifact.digest:
        raise Conflict(
            "other-weights",
            f"the artifact of model version {model_id} points to other weights than those it was made of",
            "register these weights as a version of their own",
        )
    blobs.read(sha256)
    path: Path = blobs.local_path(sha256)
    model = get_model(session, model_id)
    heads = [head for head in ontology_of(session, model.ontology_id).heads if head.name in model.heads]
    return ModelFiles(artifact.format, path, artifact.config, sha256, heads)


def _no_artifact(model_id: uuid.UUID) -> ModelArtifact:
    raise NotFound("no-artifact", f"model version {model_id} has no artifact", "register it again with its weights")


def newest_golden_set(session: Session, line_id: uuid.UUID) -> GoldenSet | None:
    """The golden set that the line's models are judged on now."""
    return session.scalars(
        select(GoldenSet).where(GoldenSet.line_id == line_id).order_by(GoldenSet.id.desc()).limit(1)
    ).one_or_none()
