"""Curate the queue by hand: an item goes to the front, or out."""

from __future__ import annotations

import uuid

from sqlalchemy import func, select

from engine.domain.refusals import Conflict, NotFound
from engine.store import audit
from engine.store.tables.labels import Campaign, QueueItem
from engine.store.unit_of_work import UnitOfWork


def prioritise(unit: UnitOfWork, project_id: uuid.UUID, item_id: uuid.UUID, priority: float, actor: str) -> None:
    """Give a queued item another priority; a higher one is labelled first. Raises NotFound, Conflict."""
    item = _queued(unit, project_id, item_id, "prioritised")
    audit.note(
        unit.session, project_id, actor, "prioritise", "queue_item", item_id, {"from": item.priority, "to": priority}
    )
    item.priority = priority
    item.updated_at = unit.session.execute(select(func.clock_timestamp())).scalar_one()
    unit.session.flush()


def drop(unit: UnitOfWork, project_id: uuid.UUID, item_id: uuid.UUID, reason: str | None, actor: str) -> None:
    """Take a queued item out. Its campaign gets the budget back and won't choose it again.

    Raises NotFound, Conflict.
    """
    item = _queued(unit, project_id, item_id, "dropped")
    campaign = unit.session.get_one(Campaign, item.campaign_id, with_for_update=True, populate_existing=True)
    campaign.spent = max(campaign.spent - 1, 0)
    audit.note(unit.session, project_id, actor, "drop", "queue_item", item_id, {"reason": reason})
    item.state = "dropped"
    item.updated_at = unit.session.execute(select(func.clock_timestamp())).scalar_one()
    unit.session.flush()


def _queued(unit: UnitOfWork, project_id: uuid.UUID, item_id: uuid.UUID, act: str) -> QueueItem:
    item = unit.session.execute(
        select(QueueItem).where(QueueItem.project_id == project_id, QueueItem.id == item_id).with_for_update()
    ).scalar_one_or_none()
    if item is None:
        raise NotFound("no-such-queue-item", f"there is no queue item {item_id}", "list them with GET /v1/queue")
    if item.state != "queued":
        raise Conflict(
            "not-queued",
            f"queue item {item_id} is {item.state}: only a queued one can be {act}",
            "an open item is in the label tool already: skip its task there",
        )
    return item
