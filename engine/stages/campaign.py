"""Campaigns: made, changed, and asked to choose."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from engine.acquisition.triggers import Trigger, TriggerError
from engine.domain.refusals import Conflict, Invalid, NotFound
from engine.jobs import ledger
from engine.stages.select import trigger_sha256
from engine.store.lines import line_by_name, ontology_of
from engine.store.tables.labels import Campaign
from engine.store.tables.metadata import new_id
from engine.store.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class CampaignRequest:
    """A campaign to be made: what it looks for, for which heads of which line, and how much of it."""

    name: str
    line: str
    heads: Sequence[str]
    budget: int
    batch_size: int
    triggers: Sequence[Mapping[str, Any]] = ()
    control_fraction: float = 0.1
    priority: int = 0
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)


def make_campaign(unit: UnitOfWork, project_id: uuid.UUID, request: CampaignRequest) -> Campaign:
    """A new, active campaign. Raises NotFound, Invalid, Conflict, OntologyError."""
    line = line_by_name(unit.session, project_id, request.line)
    ontology = ontology_of(unit.session, line.ontology_id)
    for head in request.heads:
        if ontology.head(head) not in ontology.person_heads:
            raise Invalid(
                "head-not-for-people",
                f"no person labels the head {head!r}",
                "leave it out; its labels come through POST /v1/labels:import",
            )
    try:
        triggers = [Trigger.from_document(document).to_document() for document in request.triggers]
    except (TriggerError, TypeError) as error:
        raise Invalid("invalid-trigger", str(error), "correct the trigger's name or parameters") from error
    campaign = Campaign(
        id=new_id(),
        project_id=project_id,
        name=request.name,
        line_id=line.id,
        state="active",
        triggers=triggers,
        trigger_sha256=trigger_sha256(triggers),
        heads=list(request.heads),
        budget=request.budget,
        batch_size=request.batch_size,
        control_fraction=request.control_fraction,
        priority=request.priority,
        seed=request.seed,
        settings=dict(request.settings),
    )
    unit.session.add(campaign)
    try:
        unit.session.flush()
    except IntegrityError as error:
        raise Conflict(
            "name-taken", f"there is a campaign {request.name!r} already", "choose another name, or change that one"
        ) from error
    return campaign


def change_campaign(
    unit: UnitOfWork,
    project_id: uuid.UUID,
    campaign_id: uuid.UUID,
    *,
    state: str | None = None,
    budget: int | None = None,
    batch_size: int | None = None,
    priority: int | None = None,
) -> None:
    """Change what is given. Raises NotFound, Conflict when the budget is below what was spent."""
    campaign = _locked(unit, project_id, campaign_id)
    if budget is not None and budget < campaign.spent:
        raise Conflict(
            "budget-spent", f"{campaign.spent} items were chosen already", f"give a budget of {campaign.spent} or more"
        )
    changes = {"state": state, "budget": budget, "batch_size": batch_size, "priority": priority}
    for name, value in changes.items():
        if value is not None:
            setattr(campaign, name, value)
    unit.session.flush()


def request_selection(unit: UnitOfWork, project_id: uuid.UUID, campaign_id: uuid.UUID) -> uuid.UUID:
    """Make a selection of the campaign due; returns its job. Raises NotFound, Conflict when it is not active."""
    campaign = _locked(unit, project_id, campaign_id)
    if campaign.state != "active":
        raise Conflict(
            "campaign-not-active", f"campaign {campaign.name!r} is {campaign.state}", "set its state to 'active' first"
        )
    if campaign.spent >= campaign.budget:
        raise Conflict(
            "budget-spent",
            f"campaign {campaign.name!r} has spent its budget of {campaign.budget}",
            "raise its budget first",
        )
    job_id = ledger.enqueue(
        unit,
        kind="select",
        project_id=project_id,
        subject_id=campaign_id,
        dedupe_key=f"select:{campaign_id}:{new_id()}",
    )
    assert job_id is not None  # the dedupe key is new
    return job_id


def _locked(unit: UnitOfWork, project_id: uuid.UUID, campaign_id: uuid.UUID) -> Campaign:
    campaign = unit.session.execute(
        select(Campaign).where(Campaign.project_id == project_id, Campaign.id == campaign_id).with_for_update()
    ).scalar_one_or_none()
    if campaign is None:
        raise NotFound("no-such-campaign", f"there is no campaign {campaign_id}", "list them with GET /v1/campaigns")
    return campaign
