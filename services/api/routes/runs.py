"""/v1/runs and /v1/gate-reports: how models were made, and what the gate said of them."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query

from engine.domain.access import Principal
from engine.queries import models as views
from services.api.deps import Wired, having
from services.api.etag import EtagRoute
from services.api.paging import Cursor, Limit, PageOut, page_out
from services.api.schemas.fields import Name
from services.api.schemas.models import GateReportOut, GateReportSummary, RunOut

router = APIRouter(prefix="/v1", tags=["runs"], route_class=EtagRoute)

RunReader = Annotated[Principal, Depends(having("runs:read"))]
ModelReader = Annotated[Principal, Depends(having("models:read"))]
Line = Annotated[Name | None, Query(description="Name of a model line.")]


@router.get("/runs", response_model=PageOut[RunOut], summary="List runs")
def list_runs(
    wiring: Wired,
    principal: RunReader,
    limit: Limit = 50,
    after: Cursor = None,
    line: Line = None,
    state: Literal["due", "running", "finished", "refused", "cancelled"] | None = None,
) -> Any:
    with wiring.database.read() as session:
        return page_out(views.runs(session, principal.project_id, limit + 1, after, line, state), limit)


@router.get("/runs/{run_id}", response_model=RunOut, summary="One run")
def get_run(run_id: uuid.UUID, wiring: Wired, principal: RunReader) -> Any:
    with wiring.database.read() as session:
        return views.run(session, principal.project_id, run_id)


@router.get("/gate-reports", response_model=PageOut[GateReportSummary], summary="List gate reports")
def list_gate_reports(
    wiring: Wired,
    principal: ModelReader,
    limit: Limit = 50,
    after: Cursor = None,
    line: Line = None,
    model: uuid.UUID | None = None,
    verdict: Literal["passed", "refused"] | None = None,
    newest_first: bool = False,
) -> Any:
    with wiring.database.read() as session:
        rows = views.gate_reports(session, principal.project_id, limit + 1, after, line, model, verdict, newest_first)
    return page_out(rows, limit)


@router.get("/gate-reports/{report_id}", response_model=GateReportOut, summary="One gate report, whole")
def get_gate_report(report_id: uuid.UUID, wiring: Wired, principal: ModelReader) -> Any:
    with wiring.database.read() as session:
        return views.gate_report(session, principal.project_id, report_id)
