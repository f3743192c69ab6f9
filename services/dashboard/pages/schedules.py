"""Schedules that retrain: when they fire next, what they made, and a hand to pause, resume, run and remove them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

from engine.queries import schedules as views
from engine.stages import schedule_retrains as stage
from services.dashboard.page_route import PageRoute, is_fragment
from services.dashboard.rendering import render
from services.dashboard.visitor import Visitor, doing, seeing

router = APIRouter(prefix="/schedules", route_class=PageRoute)

SCHEDULES = 100
FIRINGS = 30

Reader = Annotated[Visitor, Depends(seeing("schedules:read"))]
Keeper = Annotated[Visitor, Depends(doing("schedules:write"))]


@router.get("")
def schedules(request: Request, who: Reader, after: uuid.UUID | None = None) -> Response:
    """Schedules, and what the newest firings made; `after` pages through the firings."""
    return _shown(request, who, "schedules.html", after=after)


@router.get("/now")
def schedules_now(request: Request, who: Reader, after: uuid.UUID | None = None) -> Response:
    """The part of it that changes."""
    return _shown(request, who, "parts/schedules_now.html", after=after)


@router.post("/{schedule_id}/pause")
def pause(request: Request, schedule_id: uuid.UUID, who: Keeper) -> Response:
    """Let it rest."""
    return _act(request, who, schedule_id, stage.pause, "is paused")


@router.post("/{schedule_id}/resume")
def resume(request: Request, schedule_id: uuid.UUID, who: Keeper) -> Response:
    """Let it go on from now."""
    return _act(request, who, schedule_id, stage.resume, "goes on from now")


@router.post("/{schedule_id}/run")
def run(request: Request, schedule_id: uuid.UUID, who: Keeper) -> Response:
    """Retrain now."""
    return _act(request, who, schedule_id, stage.run_now, "retrains its line now")


@router.post("/{schedule_id}/remove")
def remove(request: Request, schedule_id: uuid.UUID, who: Keeper) -> Response:
    """Remove it."""
    return _act(request, who, schedule_id, stage.remove, "is removed; what it made stays")


def _act(request: Request, who: Visitor, schedule_id: uuid.UUID, verb: Callable[..., object], told: str) -> Response:
    """Do it, and show the schedules as they are then, with a notice; a browser without scripts gets the page."""
    project_id = who.principal.project_id
    with who.wiring.database.unit() as unit:
        name = views.detail(unit.session, project_id, schedule_id)["name"]
        verb(unit, project_id, schedule_id, str(who.principal))
        unit.commit()
    if not is_fragment(request):
        return RedirectResponse("/schedules", 303)
    return _shown(request, who, "parts/schedules_done.html", notice=f"{name} {told}.", bad=False, here="/schedules")


def _shown(request: Request, who: Visitor, template: str, after: uuid.UUID | None = None, **values: Any) -> Response:
    project_id = who.principal.project_id
    with who.wiring.database.read() as session:
        found = views.listing(session, project_id, SCHEDULES)
        fired = views.firings(session, project_id, FIRINGS + 1, after)
    return render(
        request,
        template,
        visitor=who,
        schedules=found,
        firings=fired[:FIRINGS],
        after=after,
        next=f"/schedules?after={fired[FIRINGS - 1]['id']}" if fired[FIRINGS:] else None,
        first="/schedules" if after else None,
        **values,
    )
