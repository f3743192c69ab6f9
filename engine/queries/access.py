"""Devices and tokens, without their secrets, which nobody has."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy.orm import Session

from engine.queries.records import of_project, page, record
from engine.store.access import vehicles_of
from engine.store.tables.access import DeviceKey, Token


def devices(
    session: Session, project_id: uuid.UUID, limit: int, after: uuid.UUID | None = None
) -> list[dict[str, Any]]:
    """Devices in the order of their making, the revoked ones included."""
    rows = [row[0] for row in page(session, of_project(DeviceKey, project_id), DeviceKey.id, limit, after)]
    return [record(device, vehicles=vehicles_of(session, device.id)) for device in rows]


def tokens(session: Session, project_id: uuid.UUID, limit: int, after: uuid.UUID | None = None) -> list[dict[str, Any]]:
    """Tokens in the order of their making, the revoked ones included."""
    return [record(row[0]) for row in page(session, of_project(Token, project_id), Token.id, limit, after)]
