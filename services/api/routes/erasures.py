"""/v1/erasures and /v1/retention: what is to go for good, and what is left to say of it."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from engine.domain.access import Principal
from engine.queries import erasures as views
from engine.stages.erasure_request import request_erasure
from engine.stages.idempotency import Answer, once
from engine.stages.retention import set_retention
from engine.store.unit_of_work import UnitOfWork
from services.api.deps import Idempotent, Wired, answer, having
from services.api.etag import EtagRoute
from services.api.paging import Cursor, Limit, PageOut, page_out
from services.api.schemas.erasures import ErasureIn, ErasureOut, ErasureState, RetentionIn, RetentionOut

router = APIRouter(prefix="/v1", tags=["erasures"], route_class=EtagRoute)

Reader = Annotated[Principal, Depends(having("erasures:read"))]
Writer = Annotated[Principal, Depends(having("erasures:write"))]


@router.get("/erasures", response_model=PageOut[ErasureOut], summary="List erasures, newest first")
def list_erasures(
    wiring: Wired, principal: Reader, limit: Limit = 50, after: Cursor = None, state: ErasureState | None = None
) -> Any:
    with wiring.database.read() as session:
        return page_out(views.listing(session, principal.project_id, limit + 1, after, state), limit)


@router.post("/erasures", response_model=ErasureOut, status_code=202, summary="Erase a vehicle, a drive or a clip")
def post_erasure(body: ErasureIn, response: Response, wiring: Wired, principal: Writer, request: Idempotent) -> Any:
    """For good: there is no way back. Asked for again it is the same erasure, done or not. 409 under a legal hold."""

    def act(unit: UnitOfWork) -> Answer:
        erasure, created = request_erasure(unit, principal.project_id, body.target(), body.reason, str(principal))
        shown = ErasureOut.model_validate(views.detail(unit.session, principal.project_id, erasure.id))
        location = {"Location": f"/v1/erasures/{erasure.id}"}
        return Answer(202 if created else 200, shown.model_dump(mode="json"), location)

    return answer(response, once(wiring.database, request, act))


@router.get("/erasures/{erasure_id}", response_model=ErasureOut, summary="One erasure: its state and receipt")
def get_erasure(erasure_id: uuid.UUID, wiring: Wired, principal: Reader) -> Any:
    with wiring.database.read() as session:
        return views.detail(session, principal.project_id, erasure_id)


@router.get("/retention", response_model=RetentionOut, summary="How long clips are kept")
def get_retention(wiring: Wired, principal: Reader) -> Any:
    with wiring.database.read() as session:
        return views.retention(session, principal.project_id)


@router.put("/retention", response_model=RetentionOut, summary="Say how long clips are kept")
def put_retention(body: RetentionIn, wiring: Wired, principal: Writer) -> Any:
    """Clips whose time is over are erased within the hour, unless a legal hold stands on them."""
    with wiring.database.unit() as unit:
        set_retention(unit, principal.project_id, body.keep_days, str(principal))
        unit.commit()
    return get_retention(wiring, principal)
