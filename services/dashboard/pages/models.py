"""Model versions and the runs that made them."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from engine.queries import gate_page, model_page
from services.dashboard.page_route import PageRoute
from services.dashboard.rendering import render
from services.dashboard.visitor import Visitor, seeing

router = APIRouter(route_class=PageRoute)

ROWS = 40

Reader = Annotated[Visitor, Depends(seeing("models:read"))]
RunReader = Annotated[Visitor, Depends(seeing("runs:read"))]


@router.get("/models")
def models(request: Request, who: Reader, before: uuid.UUID | None = None) -> Response:
    """Model versions, the newest first."""
    with who.wiring.database.read() as session:
        found = model_page.versions(session, who.principal.project_id, ROWS + 1, before)
    shown = found[:ROWS]
    return render(
        request,
        "models.html",
        visitor=who,
        versions=shown,
        heads=sorted({head for version in shown for head in version.metrics}),
        next=shown[-1].model.id if found[ROWS:] else None,
    )


@router.get("/models/{model_id}")
def model(request: Request, model_id: uuid.UUID, who: Reader) -> Response:
    """One version: what made it, what the gate said, what it did."""
    project_id = who.principal.project_id
    with who.wiring.database.read() as session:
        version = model_page.version(session, project_id, model_id)
        return render(
            request,
            "model.html",
            visitor=who,
            version=version,
            reports=gate_page.of_model(session, project_id, model_id),
            moves=[
                move
                for move in model_page.moves(session, version.line.id)
                if model_id in (move.promotion.from_model_id, move.promotion.to_model_id)
            ],
            scored=model_page.clips_scored(session, model_id),
            children=model_page.trained_from(session, model_id),
            labels=gate_page.label_count(session, version.dataset.id) if version.dataset else None,
        )


@router.get("/runs")
def runs(request: Request, who: RunReader, before: uuid.UUID | None = None) -> Response:
    """Runs, the newest first."""
    with who.wiring.database.read() as session:
        found = model_page.runs(session, who.principal.project_id, ROWS + 1, before)
    shown = found[:ROWS]
    return render(request, "runs.html", visitor=who, runs=shown, next=shown[-1].run.id if found[ROWS:] else None)


@router.get("/runs/{run_id}")
def run(request: Request, run_id: uuid.UUID, who: RunReader) -> Response:
    """One run, which keeps itself up to date while it goes on."""
    with who.wiring.database.read() as session:
        view = model_page.run(session, who.principal.project_id, run_id)
    metrics = view.run.metrics
    at_start, at_end = metrics.get("losses_at_start", {}), metrics.get("losses", view.run.progress.get("losses", {}))
    return render(
        request,
        "run.html",
        visitor=who,
        view=view,
        losses=[(head, at_start.get(head), at_end.get(head)) for head in sorted({*at_start, *at_end})],
        going=view.run.state in ("due", "running"),
    )
