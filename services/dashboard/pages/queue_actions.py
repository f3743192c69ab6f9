"""What a person does to the queue: to the front, another priority, out, and back in."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import RedirectResponse, Response

from engine.queries import queue_cards
from engine.stages import curate
from engine.store.unit_of_work import UnitOfWork
from services.dashboard.page_route import PageRoute, is_fragment
from services.dashboard.pages.queue import card_view
from services.dashboard.rendering import render
from services.dashboard.session import local_path
from services.dashboard.visitor import Visitor, doing

router = APIRouter(prefix="/queue", route_class=PageRoute)

Curator = Annotated[Visitor, Depends(doing("queue:write"))]
Back = Annotated[str, Form()]


@router.post("/{item_id}/front")
def to_front(request: Request, item_id: uuid.UUID, who: Curator, back: Back = "/queue") -> Response:
    """Make it the next that is labelled."""
    with who.wiring.database.unit() as unit:
        was = _priority(unit, who, item_id)
        first = queue_cards.highest_priority(unit.session, who.principal.project_id) + 1
        curate.prioritise(unit, who.principal.project_id, item_id, first, str(who.principal))
        unit.commit()
    undo = {"address": f"/queue/{item_id}/priority", "values": {"priority": repr(was)}}
    return _done(request, who, item_id, back, "Now first in the queue.", undo)


@router.post("/{item_id}/priority")
def prioritise(
    request: Request,
    item_id: uuid.UUID,
    who: Curator,
    priority: Annotated[float, Form(ge=-1e9, le=1e9, allow_inf_nan=False)],
    back: Back = "/queue",
) -> Response:
    """Give it another priority; a higher one is labelled first."""
    with who.wiring.database.unit() as unit:
        was = _priority(unit, who, item_id)
        curate.prioritise(unit, who.principal.project_id, item_id, priority, str(who.principal))
        unit.commit()
    undo = {"address": f"/queue/{item_id}/priority", "values": {"priority": repr(was)}}
    return _done(request, who, item_id, back, f"Priority {was:.2f} became {priority:.2f}.", undo)


@router.post("/{item_id}/drop")
def drop(
    request: Request,
    item_id: uuid.UUID,
    who: Curator,
    reason: Annotated[str, Form(max_length=500)] = "",
    back: Back = "/queue",
) -> Response:
    """Take it out of the queue."""
    with who.wiring.database.unit() as unit:
        curate.drop(unit, who.principal.project_id, item_id, reason.strip() or None, str(who.principal))
        unit.commit()
    undo = {"address": f"/queue/{item_id}/restore", "values": {}}
    return _done(request, who, item_id, back, "Dropped: nobody will be asked to label it.", undo)


@router.post("/{item_id}/restore")
def put_back(request: Request, item_id: uuid.UUID, who: Curator, back: Back = "/queue") -> Response:
    """Queue a dropped one again."""
    with who.wiring.database.unit() as unit:
        curate.restore(unit, who.principal.project_id, item_id, str(who.principal))
        unit.commit()
    return _done(request, who, item_id, back, "Back in the queue.", None)


def _priority(unit: UnitOfWork, who: Visitor, item_id: uuid.UUID) -> float:
    return queue_cards.card(unit.session, who.principal.project_id, item_id).priority


def _done(
    request: Request, who: Visitor, item_id: uuid.UUID, back: str, told: str, undo: Mapping[str, object] | None
) -> Response:
    """The card as it is now and a notice with its undo; to a browser without scripts the page it came from."""
    if not is_fragment(request):
        return RedirectResponse(local_path(back), 303)
    with who.wiring.database.read() as session:
        card = queue_cards.card(session, who.principal.project_id, item_id)
    return render(
        request,
        "parts/card_done.html",
        visitor=who,
        view=card_view(who, card),
        notice=told,
        undo=undo,
        bad=False,
        here="/queue",
    )
