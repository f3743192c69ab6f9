"""Rows about blobs. The bytes are durable in the blob store before a row points to them."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.ports import StoredBlob
from engine.store.tables.metadata import new_id
from engine.store.tables.recordings import Blob


def register(session: Session, project_id: uuid.UUID, stored: StoredBlob, media_type: str) -> Blob:
    """The row of managed bytes; the same bytes in the same project are one row."""
    added = session.scalars(
        insert(Blob)
        .values(
            id=new_id(),
            project_id=project_id,
            sha256=stored.sha256,
            size_bytes=stored.size,
            media_type=media_type,
            storage="managed",
        )
        .on_conflict_do_nothing(index_elements=["project_id", "sha256"])
        .returning(Blob)
    ).one_or_none()
    return (
        added
        or session.execute(select(Blob).where(Blob.project_id == project_id, Blob.sha256 == stored.sha256)).scalar_one()
    )


def known(session: Session, sha256s: Collection[str]) -> set[str]:
    """Those of these hashes that a row of any project has."""
    return {str(sha256) for sha256 in session.scalars(select(Blob.sha256).where(Blob.sha256.in_(sha256s)))}


def sha256_of(session: Session, blob_id: uuid.UUID) -> str:
    """The hash that names a managed blob's bytes in the store."""
    sha256 = session.execute(select(Blob.sha256).where(Blob.id == blob_id)).scalar_one()
    if sha256 is None:
        raise LookupError(f"blob {blob_id} is external and has not been read yet")
    return sha256
