"""The loop at a glance."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from engine.queries import loop_history
from engine.queries.overview import overview
from services.dashboard.charts import history_chart
from services.dashboard.loop_view import stages
from services.dashboard.page_route import PageRoute
from services.dashboard.rendering import render
from services.dashboard.visitor import Visitor, visitor

router = APIRouter(route_class=PageRoute)


@router.get("/")
def loop(request: Request, who: Annotated[Visitor, Depends(visitor)]) -> Response:
    """The loop, which keeps itself up to date."""
    return _shown(request, who, "loop.html")


@router.get("/loop/now")
def loop_now(request: Request, who: Annotated[Visitor, Depends(visitor)]) -> Response:
    """The part of it that changes."""
    return _shown(request, who, "parts/loop_now.html")


def _shown(request: Request, who: Visitor, template: str) -> Response:
    project_id = who.principal.project_id
    with who.wiring.database.read() as session:
        seen = overview(session, project_id)
        promoted = loop_history.promotions(session, project_id)
        histories = {line["id"]: loop_history.history(session, line["id"]) for line in seen["lines"]}
    return render(
        request,
        template,
        visitor=who,
        seen=seen,
        stages=stages(seen, promoted),
        charts={line: [history_chart(head) for head in heads] for line, heads in histories.items()},
    )
