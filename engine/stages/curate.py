"""Curate the queue by hand: an item goes to the front, or out, or comes back."""

from __future__ import annotations

import uuid

from sqlalchemy import select

from engine.domain.refusals import Conflict, NotFound
from engine.jobs import ledger
from engine.store import audit, label_tasks
from engine.store.tables.labels import Campaign, QueueItem
from engine.store.tables.metadata import new_id
from engine.store.unit_of_work import UnitOfWork


def prioritise(unit: UnitOfWork, project_id: uuid.UUID, item_id: uuid.UUID, priority: float, actor: str) -> None:
    """Give a queued item another priority; a higher one is labelled first. Raises NotFound, Conflict."""
    item = _item(unit, project_id, item_id)
    if item.state != "queued":
        raise Conflict(
            "not-queued",
            f"queue item {item_id} is {item.state}: only a queued one can be prioritised",
            "an open item is in the label tool already, and its order there is its own",
        )
    audit.note(
        unit.session, project_id, actor, "prioritise", "queue_item", item_id, {"from": item.priority, "to": priority}
    )
    item.priority = priority
    label_tasks.move(unit.session, item, "queued")
    unit.session.flush()


def drop(unit: UnitOfWork, project_id: uuid.UUID, item_id: uuid.UUID, reason: str | None, actor: str) -> None:
    """Take an item out that nobody has answered. Its campaign gets the budget back and won't choose it again.

    An open one's task is taken out of the label tool, unless another item wants it. Raises NotFound, Conflict.
    """
    item = _item(unit, project_id, item_id)
    answered = item.state == "open" and label_tasks.is_answered(unit.session, item)
    if item.state not in ("queued", "open") or answered:
        raise Conflict(
            "not-droppable",
            f"queue item {item_id} is {'answered' if answered else item.state}: "
            "only one that nobody has answered can be dropped",
            "where an answer is wrong, change or delete it in the label tool",
        )
    if item.state == "open":
        ledger.enqueue(
            unit,
            kind="push",
            project_id=project_id,
            subject_id=item.ontology_id,
            dedupe_key=f"push:{item.ontology_id}:without:{item.id}:{new_id()}",
        )
    campaign = unit.session.get_one(Campaign, item.campaign_id, with_for_update=True, populate_existing=True)
    campaign.spent = max(campaign.spent - 1, 0)
    audit.note(unit.session, project_id, actor, "drop", "queue_item", item_id, {"reason": reason})
    label_tasks.move(unit.session, item, "dropped")
    unit.session.flush()


def restore(unit: UnitOfWork, project_id: uuid.UUID, item_id: uuid.UUID, actor: str) -> None:
    """Queue a dropped item again, at the priority that it had; its campaign pays for it again.

    Raises NotFound, Conflict: it is not dropped, or the campaign has no budget left.
    """
    item = _item(unit, project_id, item_id)
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
    label_tasks.move(unit.session, item, "queued", dropped=None)
    unit.session.flush()


def _item(unit: UnitOfWork, project_id: uuid.UUID, item_id: uuid.UUID) -> QueueItem:
    item = unit.session.execute(
        select(QueueItem).where(QueueItem.project_id == project_id, QueueItem.id == item_id).with_for_update()
    ).scalar_one_or_none()
    if item is None:
        raise NotFound("no-such-queue-item", f"there is no queue item {item_id}", "list them with GET /v1/queue")
    return item
