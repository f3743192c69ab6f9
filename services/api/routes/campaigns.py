"""/v1/campaigns: what is looked for, and how much of it."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from engine.domain.access import Principal
from engine.queries import campaigns as views
from engine.stages.campaign import CampaignRequest, change_campaign, make_campaign, request_selection
from engine.stages.idempotency import Answer, once
from engine.store.unit_of_work import UnitOfWork
from services.api.deps import Idempotent, Wired, answer, having
from services.api.etag import EtagRoute
from services.api.paging import Cursor, Limit, PageOut, page_out
from services.api.schemas.queue import CampaignChange, CampaignIn, CampaignOut, JobStarted

router = APIRouter(prefix="/v1/campaigns", tags=["campaigns"], route_class=EtagRoute)

Reader = Annotated[Principal, Depends(having("campaigns:read"))]
Writer = Annotated[Principal, Depends(having("campaigns:write"))]


@router.get("", response_model=PageOut[CampaignOut], summary="List campaigns")
def list_campaigns(wiring: Wired, principal: Reader, limit: Limit = 50, after: Cursor = None) -> Any:
    with wiring.database.read() as session:
        return page_out(views.listing(session, principal.project_id, limit + 1, after), limit)


@router.post("", response_model=CampaignOut, status_code=201, summary="Make a campaign")
def post_campaign(body: CampaignIn, response: Response, wiring: Wired, principal: Writer, request: Idempotent) -> Any:
    asked = CampaignRequest(
        name=body.name,
        line=body.line,
        heads=body.heads,
        budget=body.budget,
        batch_size=body.batch_size,
        triggers=[trigger.model_dump() for trigger in body.triggers],
        control_fraction=body.control_fraction,
        priority=body.priority,
        seed=body.seed,
        settings=body.settings,
    )

    def act(unit: UnitOfWork) -> Answer:
        campaign = make_campaign(unit, principal.project_id, asked)
        shown = CampaignOut.model_validate(views.detail(unit.session, principal.project_id, campaign.id))
        return Answer(201, shown.model_dump(mode="json"), {"Location": f"/v1/campaigns/{campaign.id}"})

    return answer(response, once(wiring.database, request, act))


@router.get("/{campaign_id}", response_model=CampaignOut, summary="One campaign")
def get_campaign(campaign_id: uuid.UUID, wiring: Wired, principal: Reader) -> Any:
    with wiring.database.read() as session:
        return views.detail(session, principal.project_id, campaign_id)


@router.patch("/{campaign_id}", response_model=CampaignOut, summary="Pause, end, or change a campaign")
def patch_campaign(campaign_id: uuid.UUID, body: CampaignChange, wiring: Wired, principal: Writer) -> Any:
    with wiring.database.unit() as unit:
        change_campaign(unit, principal.project_id, campaign_id, **body.model_dump(exclude_none=True))
        unit.commit()
    return get_campaign(campaign_id, wiring, principal)


@router.post("/{campaign_id}:select", response_model=JobStarted, status_code=202, summary="Choose a batch")
def select(campaign_id: uuid.UUID, response: Response, wiring: Wired, principal: Writer, request: Idempotent) -> Any:
    def act(unit: UnitOfWork) -> Answer:
        job_id = request_selection(unit, principal.project_id, campaign_id)
        return Answer(202, {"job_id": str(job_id)}, {"Location": f"/v1/jobs/{job_id}"})

    return answer(response, once(wiring.database, request, act))
