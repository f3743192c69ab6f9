"""Access: keys for devices and tokens for people are made, and revoked."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from engine.domain.access import SCOPES, new_secret, secret_sha256
from engine.domain.refusals import Conflict, Invalid, NotFound
from engine.store import audit
from engine.store.tables.access import DeviceKey, DeviceKeyVehicle, Token
from engine.store.tables.metadata import new_id
from engine.store.unit_of_work import UnitOfWork


def make_device(
    unit: UnitOfWork, project_id: uuid.UUID, name: str, vehicles: Sequence[str], any_vehicle: bool, actor: str
) -> tuple[DeviceKey, str]:
    """A new device's key and its secret, which is not kept. Raises Invalid, Conflict."""
    if any_vehicle == bool(vehicles):
        raise Invalid(
            "vehicles-unclear",
            "a device sends for the vehicles that are named, or for any vehicle: give one of the two",
            "name `vehicles`, or set `any_vehicle` for a gateway",
        )
    secret = new_secret("device")
    device = DeviceKey(
        id=new_id(), project_id=project_id, name=name, secret_sha256=secret_sha256(secret), any_vehicle=any_vehicle
    )
    _add_named(unit, device, f"a device {name!r}")
    unit.session.add_all(
        DeviceKeyVehicle(project_id=project_id, device_key_id=device.id, vehicle_external_id=vehicle)
        for vehicle in sorted(set(vehicles))
    )
    audit.note(unit.session, project_id, actor, "make", "device", device.id, {"name": name, "vehicles": list(vehicles)})
    unit.session.flush()
    return device, secret


def make_token(
    unit: UnitOfWork,
    project_id: uuid.UUID,
    name: str,
    scopes: Sequence[str],
    expires_at: datetime | None,
    actor: str,
) -> tuple[Token, str]:
    """A new token and its secret, which is not kept. Raises Invalid, Conflict."""
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise Invalid(
            "unknown-scope",
            f"there is no scope {unknown[0]!r}" if unknown else "a token without a scope could do nothing",
            f"scopes are: {', '.join(SCOPES)}",
        )
    secret = new_secret("token")
    token = Token(
        id=new_id(),
        project_id=project_id,
        name=name,
        secret_sha256=secret_sha256(secret),
        scopes=sorted(set(scopes)),
        expires_at=expires_at,
    )
    _add_named(unit, token, f"a token {name!r}")
    audit.note(unit.session, project_id, actor, "make", "token", token.id, {"name": name, "scopes": token.scopes})
    return token, secret


def revoke_device(unit: UnitOfWork, project_id: uuid.UUID, device_id: uuid.UUID, actor: str) -> None:
    """From its commit on, the key opens nothing. Revoking again is no error. Raises NotFound."""
    _revoke(unit, DeviceKey, "device", project_id, device_id, actor)


def revoke_token(unit: UnitOfWork, project_id: uuid.UUID, token_id: uuid.UUID, actor: str) -> None:
    """From its commit on, the token opens nothing. Revoking again is no error. Raises NotFound."""
    _revoke(unit, Token, "token", project_id, token_id, actor)


def _revoke(
    unit: UnitOfWork,
    table: type[DeviceKey] | type[Token],
    what: str,
    project_id: uuid.UUID,
    row_id: uuid.UUID,
    actor: str,
) -> None:
    row: Any = unit.session.execute(
        select(table).where(table.project_id == project_id, table.id == row_id).with_for_update()
    ).scalar_one_or_none()
    if row is None:
        raise NotFound(f"no-such-{what}", f"there is no {what} {row_id}", f"list them with GET /v1/{what}s")
    if row.revoked_at is None:
        row.revoked_at = unit.session.execute(select(func.clock_timestamp())).scalar_one()
        audit.note(unit.session, project_id, actor, "revoke", what, row_id, {"name": row.name})
    unit.session.flush()


def _add_named(unit: UnitOfWork, row: DeviceKey | Token, what: str) -> None:
    unit.session.add(row)
    try:
        unit.session.flush()
    except IntegrityError as error:
        raise Conflict("name-taken", f"there is {what} already, perhaps revoked", "choose another name") from error
