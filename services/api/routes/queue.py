"""/v1/queue: what is to be labelled, in order, and why; and hands on the order."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request

from engine.domain.access import Principal
from engine.queries import queue as views
from engine.stages import curate
from services.api.deps import Wired, having
from services.api.etag import EtagRoute
from services.api.paging import Cursor, Limit, PageOut, page_out
from services.api.schemas.fields import Name
from services.api.schemas.queue import DropIn, PrioritiseIn, QueueItemOut

router = APIRouter(prefix="/v1/queue", tags=["queue"], route_class=EtagRoute)

Reader = Annotated[Principal, Depends(having("queue:read"))]
Writer = Annotated[Principal, Depends(having("queue:write"))]


def _with_picture(request: Request, item: dict[str, Any]) -> dict[str, Any]:
    sha256 = item["picture_sha256"]
    return item | {"picture": request.app.state.links.path(sha256) if sha256 else None}


@router.get("", response_model=PageOut[QueueItemOut], summary="List the queue in its order")
def list_queue(
    request: Request,
    wiring: Wired,
    principal: Reader,
    limit: Limit = 50,
    after: Cursor = None,
    state: Literal["queued", "open", "labelled", "dropped"] | None = None,
    campaign: Annotated[Name | None, Query()] = None,
    arm: Literal["chosen", "control"] | None = None,
    head: Annotated[Name | None, Query()] = None,
) -> Any:
    with wiring.database.read() as session:
        rows = views.listing(
            session,
            principal.project_id,
            limit=limit + 1,
            after=after,
            state=state,
            campaign=campaign,
            arm=arm,
            head=head,
        )
    return page_out([_with_picture(request, row) for row in rows], limit)


@router.get("/{item_id}", response_model=QueueItemOut, summary="One item")
def get_item(request: Request, item_id: uuid.UUID, wiring: Wired, principal: Reader) -> Any:
    with wiring.database.read() as session:
        return _with_picture(request, views.detail(session, principal.project_id, item_id))


@router.post("/{item_id}:prioritise", response_model=QueueItemOut, summary="Give a queued item another priority")
def prioritise(request: Request, item_id: uuid.UUID, body: PrioritiseIn, wiring: Wired, principal: Writer) -> Any:
    with wiring.database.unit() as unit:
        curate.prioritise(unit, principal.project_id, item_id, body.priority, str(principal))
        unit.commit()
    return get_item(request, item_id, wiring, principal)


@router.post("/{item_id}:drop", response_model=QueueItemOut, summary="Take an item out that nobody has answered")
def drop(request: Request, item_id: uuid.UUID, body: DropIn, wiring: Wired, principal: Writer) -> Any:
    with wiring.database.unit() as unit:
        curate.drop(unit, principal.project_id, item_id, body.reason, str(principal))
        unit.commit()
    return get_item(request, item_id, wiring, principal)
