"""Answers given under an `Idempotency-Key`, so that the same request gets the same one."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.store.tables.access import IdempotencyKey
from engine.store.tables.metadata import new_id


def find(session: Session, project_id: uuid.UUID, principal: str, key: str) -> IdempotencyKey | None:
    """What this caller was answered under this key."""
    return session.execute(
        select(IdempotencyKey).where(
            IdempotencyKey.project_id == project_id, IdempotencyKey.principal == principal, IdempotencyKey.key == key
        )
    ).scalar_one_or_none()


def remember(
    session: Session,
    project_id: uuid.UUID,
    principal: str,
    key: str,
    request_sha256: str,
    status: int,
    body: dict[str, Any],
    headers: dict[str, str],
) -> IdempotencyKey | None:
    """Keep the answer; when another transaction kept one first, waits for it and returns that one instead."""
    inserted = session.execute(
        insert(IdempotencyKey)
        .values(
            id=new_id(),
            project_id=project_id,
            principal=principal,
            key=key,
            request_sha256=request_sha256,
            status=status,
            body=body,
            headers=headers,
        )
        .on_conflict_do_nothing(index_elements=["project_id", "principal", "key"])
        .returning(IdempotencyKey.id)
    ).scalar_one_or_none()
    return None if inserted is not None else find(session, project_id, principal, key)
