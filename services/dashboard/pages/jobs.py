"""The ledger of jobs: what is due, what died and why, and a hand to try it again."""

from __future__ import annotations

import uuid
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import RedirectResponse, Response

from engine.domain.refusals import Conflict
from engine.jobs import ledger
from engine.jobs.kinds import JOB_KINDS
from engine.queries import jobs as views
from services.dashboard.page_route import PageRoute
from services.dashboard.rendering import render
from services.dashboard.session import local_path
from services.dashboard.visitor import Visitor, doing, seeing

router = APIRouter(prefix="/jobs", route_class=PageRoute)

JOBS = 50
STATES = ("dead", "due", "leased", "done", "cancelled")


@router.get("")
def jobs(
    request: Request,
    who: Annotated[Visitor, Depends(seeing("jobs:read"))],
    state: str = "",
    kind: str = "",
    after: uuid.UUID | None = None,
) -> Response:
    """Jobs, the newest first."""
    with who.wiring.database.read() as session:
        found = views.listing(
            session,
            who.principal.project_id,
            limit=JOBS + 1,
            after=after,
            kind=kind or None,
            state=state or None,
            routine=state == "done",
        )
    shown = found[:JOBS]

    def address(**changes: Any) -> str:
        given = {key: value for key, value in {"state": state, "kind": kind, **changes}.items() if value}
        return f"/jobs?{urlencode(given)}" if given else "/jobs"

    return render(
        request,
        "jobs.html",
        visitor=who,
        jobs=shown,
        state=state,
        kind=kind,
        states=[("all", address(state=""))] + [(name, address(state=name)) for name in STATES],
        kinds=sorted(JOB_KINDS),
        back=address(),
        next=address(after=shown[-1]["id"]) if found[JOBS:] else None,
        first=address() if after else None,
    )


@router.post("/{job_id}/retry")
def retry(
    job_id: uuid.UUID,
    who: Annotated[Visitor, Depends(doing("jobs:write"))],
    back: Annotated[str, Form()] = "/jobs",
) -> Response:
    """Make a dead job due again."""
    with who.wiring.database.unit() as unit:
        job = views.detail(unit.session, who.principal.project_id, job_id)
        if not ledger.retry_dead(unit, job_id):
            raise Conflict("not-dead", f"job {job_id} is {job['state']}", "only a dead job can be tried again")
        unit.commit()
    return RedirectResponse(local_path(back), 303)
