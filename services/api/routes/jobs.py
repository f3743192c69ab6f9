"""/v1/jobs: the ledger, and a hand for what has died."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import AfterValidator

from engine.domain.access import Principal
from engine.domain.refusals import Conflict
from engine.jobs import ledger
from engine.jobs.kinds import JobState, job_kind
from engine.queries import jobs as views
from services.api.deps import Wired, having
from services.api.etag import EtagRoute
from services.api.paging import Cursor, Limit, PageOut, page_out
from services.api.schemas.fields import Name
from services.api.schemas.operations import JobOut

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=EtagRoute)

Reader = Annotated[Principal, Depends(having("jobs:read"))]
Writer = Annotated[Principal, Depends(having("jobs:write"))]
KindName = Annotated[Name, AfterValidator(lambda name: job_kind(name).name)]


@router.get("", response_model=PageOut[JobOut], summary="List jobs, newest first")
def list_jobs(
    wiring: Wired,
    principal: Reader,
    limit: Limit = 50,
    after: Cursor = None,
    kind: Annotated[KindName | None, Query()] = None,
    state: JobState | None = None,
    subject: uuid.UUID | None = None,
) -> Any:
    with wiring.database.read() as session:
        rows = views.listing(
            session,
            principal.project_id,
            limit=limit + 1,
            after=after,
            kind=kind,
            state=state,
            subject_id=subject,
        )
    return page_out(rows, limit)


@router.get("/{job_id}", response_model=JobOut, summary="One job")
def get_job(job_id: uuid.UUID, wiring: Wired, principal: Reader) -> Any:
    with wiring.database.read() as session:
        return views.detail(session, principal.project_id, job_id)


@router.post("/{job_id}:retry", response_model=JobOut, summary="Make a dead job due again")
def retry(job_id: uuid.UUID, wiring: Wired, principal: Writer) -> Any:
    with wiring.database.unit() as unit:
        job = views.detail(unit.session, principal.project_id, job_id)
        if not ledger.retry_dead(unit, job_id):
            raise Conflict(
                "job-not-dead",
                f"job {job_id} is {job['state']}",
                "only a dead job is retried by hand; the others go on alone",
            )
        unit.commit()
    return get_job(job_id, wiring, principal)
