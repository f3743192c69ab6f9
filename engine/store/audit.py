"""The audit: acts that changed what the fleet runs, what is labelled, or who may do what."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from engine.store.tables.access import AuditEntry
from engine.store.tables.metadata import new_id


def note(
    session: Session,
    project_id: uuid.UUID,
    actor: str,
    act: str,
    object_kind: str,
    object_id: uuid.UUID,
    details: Mapping[str, Any],
) -> None:
    """Write an entry in the transaction of the act itself."""
    session.add(
        AuditEntry(
            id=new_id(),
            project_id=project_id,
            actor=actor,
            act=act,
            object_kind=object_kind,
            object_id=str(object_id),
            details=dict(details),
        )
    )
