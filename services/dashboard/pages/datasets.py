"""Dataset versions: how much of what, from where, and what was trained on it."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from engine.queries import model_page
from engine.queries.datasets import golden_listing
from services.dashboard.page_route import PageRoute
from services.dashboard.rendering import render
from services.dashboard.visitor import Visitor, seeing

router = APIRouter(prefix="/datasets", route_class=PageRoute)

ROWS = 40
CLIPS = 100

Reader = Annotated[Visitor, Depends(seeing("datasets:read"))]


@router.get("")
def datasets(request: Request, who: Reader, before: uuid.UUID | None = None) -> Response:
    """Dataset versions, the newest first, and the golden sets beside them."""
    with who.wiring.database.read() as session:
        found = model_page.datasets(session, who.principal.project_id, ROWS + 1, before)
        golden = golden_listing(session, who.principal.project_id, ROWS)
    shown = found[:ROWS]
    return render(
        request,
        "datasets.html",
        visitor=who,
        datasets=shown,
        golden=golden[::-1],
        next=shown[-1].version.id if found[ROWS:] else None,
    )


@router.get("/{dataset_id}")
def dataset(request: Request, dataset_id: uuid.UUID, who: Reader) -> Response:
    """One dataset version."""
    with who.wiring.database.read() as session:
        found = model_page.dataset(session, who.principal.project_id, dataset_id)
        clips = model_page.clips_of_dataset(session, dataset_id, CLIPS + 1)
        runs = model_page.runs_on(session, who.principal.project_id, dataset_id)
    return render(
        request,
        "dataset.html",
        visitor=who,
        dataset=found,
        clips=clips[:CLIPS],
        more_clips=bool(clips[CLIPS:]),
        runs=runs,
    )
