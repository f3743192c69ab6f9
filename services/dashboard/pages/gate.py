"""Gate reports: why a model was let through, or was not."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from engine.queries import gate_page
from services.dashboard.charts import forests
from services.dashboard.page_route import PageRoute
from services.dashboard.rendering import render
from services.dashboard.visitor import Visitor, seeing

router = APIRouter(prefix="/gate-reports", route_class=PageRoute)

REPORTS = 40

Reader = Annotated[Visitor, Depends(seeing("models:read"))]


@router.get("")
def reports(request: Request, who: Reader, verdict: str = "", before: uuid.UUID | None = None) -> Response:
    """All reports, the newest first."""
    with who.wiring.database.read() as session:
        found = gate_page.listing(
            session, who.principal.project_id, limit=REPORTS + 1, before=before, verdict=verdict or None
        )
    return render(
        request,
        "gate_reports.html",
        visitor=who,
        reports=found[:REPORTS],
        verdict=verdict,
        next=found[REPORTS - 1].report.id if found[REPORTS:] else None,
    )


@router.get("/{report_id}")
def report(request: Request, report_id: uuid.UUID, who: Reader) -> Response:
    """One report, with every figure that the verdict was made of."""
    with who.wiring.database.read() as session:
        judged = gate_page.detail(session, who.principal.project_id, report_id)
        noise = gate_page.noise(session, judged.report.line_id, judged.report.golden_set_id)
        labels = gate_page.label_count(session, judged.dataset.id) if judged.dataset else None
        golden = gate_page.golden_count(session, judged.golden.id)
    slices: dict[str, list[dict[str, object]]] = {}
    for row in judged.slices:
        slices.setdefault(row["head"], []).append(row)
    return render(
        request,
        "gate_report.html",
        visitor=who,
        judged=judged,
        plots=forests(judged.rows),
        slices={head: (forests(rows), rows) for head, rows in slices.items()},
        noise=noise,
        labels=labels,
        golden_subjects=golden,
    )
