"""/v1/holds: what a court or an inquiry needs stays, whoever asks for its erasure and however old it is."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from engine.domain.access import Principal
from engine.queries import erasures as views
from engine.stages.holds import lift_hold, place_hold
from engine.stages.idempotency import Answer, once
from engine.store.unit_of_work import UnitOfWork
from services.api.deps import Idempotent, Wired, answer, having
from services.api.etag import EtagRoute
from services.api.paging import Cursor, Limit, PageOut, page_out
from services.api.schemas.erasures import HoldIn, HoldOut, LiftIn

router = APIRouter(prefix="/v1/holds", tags=["holds"], route_class=EtagRoute)

Reader = Annotated[Principal, Depends(having("holds:read"))]
Writer = Annotated[Principal, Depends(having("holds:write"))]


@router.get("", response_model=PageOut[HoldOut], summary="List legal holds")
def list_holds(
    wiring: Wired,
    principal: Reader,
    limit: Limit = 50,
    after: Cursor = None,
    standing: Annotated[bool | None, Query(description="Only those that stand, or only those that don't.")] = None,
) -> Any:
    with wiring.database.read() as session:
        return page_out(views.holds(session, principal.project_id, limit + 1, after, standing), limit)


@router.post("", response_model=HoldOut, status_code=201, summary="Hold a vehicle, a drive or a clip")
def post_hold(body: HoldIn, response: Response, wiring: Wired, principal: Writer, request: Idempotent) -> Any:
    """All that belongs to it, now and later, is neither erased nor expires until the hold is lifted."""

    def act(unit: UnitOfWork) -> Answer:
        hold = place_hold(unit, principal.project_id, body.target(), body.reason, str(principal))
        shown = HoldOut.model_validate(views.hold(unit.session, principal.project_id, hold.id))
        return Answer(201, shown.model_dump(mode="json"), {"Location": f"/v1/holds/{hold.id}"})

    return answer(response, once(wiring.database, request, act))


@router.get("/{hold_id}", response_model=HoldOut, summary="One legal hold")
def get_hold(hold_id: uuid.UUID, wiring: Wired, principal: Reader) -> Any:
    with wiring.database.read() as session:
        return views.hold(session, principal.project_id, hold_id)


@router.post("/{hold_id}:lift", response_model=HoldOut, summary="Lift a legal hold")
def lift(
    hold_id: uuid.UUID, body: LiftIn, response: Response, wiring: Wired, principal: Writer, request: Idempotent
) -> Any:
    def act(unit: UnitOfWork) -> Answer:
        lift_hold(unit, principal.project_id, hold_id, body.reason, str(principal))
        shown = HoldOut.model_validate(views.hold(unit.session, principal.project_id, hold_id))
        return Answer(200, shown.model_dump(mode="json"))

    return answer(response, once(wiring.database, request, act))
