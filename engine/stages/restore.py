"""Restore: a queue item that was dropped comes back."""

from __future__ import annotations

import uuid

from sqlalchemy import func, select

from engine.domain.refusals import Conflict, NotFound
from engine.store import audit
from engine.store.tables.labels import Campaign, QueueItem
from engine.store.unit_of_work import UnitOfWork


def restore(unit: UnitOfWork, project_id: uuid.UUID, item_id: uuid.UUID, actor: str) -> None:
    """Queue a dropped item again, at the priority that it had; its campaign pays for it again.

    Raises NotFound, Conflict: it is not dropped, or the campaign has no budget left.
    """
    item = unit.session.execute(
        select(QueueItem).where(QueueItem.project_id == project_id, QueueItem.id == item_id).with_for_update()
    ).scalar_one_or_none()
    if item is None:
        raise NotFound("no-such-queue-item", f"there is no queue item {item_id}", "list them with GET /v1/queue")
    if item.state != "dropped":
        raise Conflict("not-dropped", f"queue item {item_id} is {item.state}", "there is nothing to restore")
    campaign = unit.session.get_one(Campaign, item.campaign_id, with_for_update=True, populate_existing=True)
    if campaign.spent >= campaign.budget:
        raise Conflict(
            "no-budget",
            f"campaign {campaign.name!r} has spent its whole budget of {campaign.budget}",
            "raise its budget first",
        )
    campaign.spent += 1
    audit.note(unit.session, project_id, actor, "restore", "queue_item", item_id, {})
    item.state = "queued"
    item.updated_at = unit.session.execute(select(func.clock_timestamp())).scalar_one()
    unit.session.flush()
