"""Rows about callers: tokens, device keys and the vehicles these may send for."""

from __future__ import annotations

import uuid

from sqlalchemy import func, or_, select, text, update
from sqlalchemy.orm import Session

from engine.domain.access import DEVICE_SCOPES, Principal
from engine.store.tables.access import DeviceKey, DeviceKeyVehicle, Token


def principal_of(session: Session, secret_sha256: str) -> Principal | None:
    """The caller whose secret has this hash, unless it was revoked or has expired."""
    token = session.execute(
        select(Token).where(
            Token.secret_sha256 == secret_sha256,
            Token.revoked_at.is_(None),
            or_(Token.expires_at.is_(None), Token.expires_at > func.now()),
        )
    ).scalar_one_or_none()
    if token is not None:
        return Principal("token", token.id, token.name, token.project_id, frozenset(token.scopes))
    key = session.execute(
        select(DeviceKey).where(DeviceKey.secret_sha256 == secret_sha256, DeviceKey.revoked_at.is_(None))
    ).scalar_one_or_none()
    if key is None:
        return None
    return Principal(
        "device",
        key.id,
        key.name,
        key.project_id,
        DEVICE_SCOPES,
        key.any_vehicle,
        frozenset(vehicles_of(session, key.id)),
    )


def vehicles_of(session: Session, device_key_id: uuid.UUID) -> list[str]:
    """External ids of the vehicles that a device's key is bound to, in order."""
    return list(
        session.execute(
            select(DeviceKeyVehicle.vehicle_external_id)
            .where(DeviceKeyVehicle.device_key_id == device_key_id)
            .order_by(DeviceKeyVehicle.vehicle_external_id)
        ).scalars()
    )


def seen(session: Session, device_key_id: uuid.UUID) -> None:
    """Note that the device was heard of; to the minute, and never waiting for another upload that notes the same."""
    due = (
        select(DeviceKey.id)
        .where(
            DeviceKey.id == device_key_id,
            or_(DeviceKey.last_seen_at.is_(None), DeviceKey.last_seen_at < func.now() - text("interval '1 minute'")),
        )
        .with_for_update(skip_locked=True)
    )
    session.execute(update(DeviceKey).where(DeviceKey.id.in_(due)).values(last_seen_at=func.now()))
