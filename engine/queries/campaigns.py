"""Campaigns, with how far each has got."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from engine.queries.records import of_project, one, page, record
from engine.store.tables.labels import Campaign, QueueItem


def listing(
    session: Session, project_id: uuid.UUID, limit: int, after: uuid.UUID | None = None
) -> list[dict[str, Any]]:
    """Campaigns in the order of their making."""
    rows = [row[0] for row in page(session, of_project(Campaign, project_id), Campaign.id, limit, after)]
    return _with_counts(session, rows)


def detail(session: Session, project_id: uuid.UUID, campaign_id: uuid.UUID) -> dict[str, Any]:
    """One campaign. Raises NotFound."""
    query = of_project(Campaign, project_id).where(Campaign.id == campaign_id)
    return _with_counts(session, [one(session, query, "campaign", campaign_id, "campaigns")[0]])[0]


def _with_counts(session: Session, campaigns: Sequence[Campaign]) -> list[dict[str, Any]]:
    counts: dict[uuid.UUID, dict[str, int]] = defaultdict(dict)
    for campaign_id, state, count in session.execute(
        select(QueueItem.campaign_id, QueueItem.state, func.count())
        .where(QueueItem.campaign_id.in_([campaign.id for campaign in campaigns]))
        .group_by(QueueItem.campaign_id, QueueItem.state)
    ):
        counts[campaign_id][state] = count
    return [record(campaign, items=counts[campaign.id]) for campaign in campaigns]
