"""/v1/devices and /v1/tokens: who may do what. Administrators only."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from engine.domain.access import ADMIN, Principal
from engine.queries import access as views
from engine.stages import access
from services.api.deps import Wired, having, without_idempotency
from services.api.paging import Cursor, Limit, PageOut, page_out
from services.api.schemas.operations import DeviceIn, DeviceOut, SecretOut, TokenIn, TokenOut

router = APIRouter(prefix="/v1", tags=["access"])

Admin = Annotated[Principal, Depends(having(ADMIN))]


@router.get("/devices", response_model=PageOut[DeviceOut], summary="List devices")
def list_devices(wiring: Wired, principal: Admin, limit: Limit = 50, after: Cursor = None) -> Any:
    with wiring.database.read() as session:
        return page_out(views.devices(session, principal.project_id, limit + 1, after), limit)


@router.post(
    "/devices",
    response_model=SecretOut,
    status_code=201,
    dependencies=[Depends(without_idempotency)],
    summary="Make a device's key",
)
def post_device(body: DeviceIn, wiring: Wired, principal: Admin) -> SecretOut:
    """The secret is told once, here, and kept nowhere: so an `Idempotency-Key` is refused."""
    with wiring.database.unit() as unit:
        device, secret = access.make_device(
            unit, principal.project_id, body.name, body.vehicles, body.any_vehicle, str(principal)
        )
        unit.commit()
    return SecretOut(id=device.id, name=device.name, secret=secret)


@router.delete("/devices/{device_id}", status_code=204, summary="Revoke a device's key")
def delete_device(device_id: uuid.UUID, wiring: Wired, principal: Admin) -> None:
    with wiring.database.unit() as unit:
        access.revoke_device(unit, principal.project_id, device_id, str(principal))
        unit.commit()


@router.get("/tokens", response_model=PageOut[TokenOut], summary="List tokens")
def list_tokens(wiring: Wired, principal: Admin, limit: Limit = 50, after: Cursor = None) -> Any:
    with wiring.database.read() as session:
        return page_out(views.tokens(session, principal.project_id, limit + 1, after), limit)


@router.post(
    "/tokens",
    response_model=SecretOut,
    status_code=201,
    dependencies=[Depends(without_idempotency)],
    summary="Make a token",
)
def post_token(body: TokenIn, wiring: Wired, principal: Admin) -> SecretOut:
    """The secret is told once, here, and kept nowhere: so an `Idempotency-Key` is refused."""
    with wiring.database.unit() as unit:
        token, secret = access.make_token(
            unit, principal.project_id, body.name, body.scopes, body.expires_at, str(principal)
        )
        unit.commit()
    return SecretOut(id=token.id, name=token.name, secret=secret)


@router.delete("/tokens/{token_id}", status_code=204, summary="Revoke a token")
def delete_token(token_id: uuid.UUID, wiring: Wired, principal: Admin) -> None:
    with wiring.database.unit() as unit:
        access.revoke_token(unit, principal.project_id, token_id, str(principal))
        unit.commit()
