"""The label queue: what is labelled next, why, and what the model thought of it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from engine.domain.refusals import Invalid
from engine.queries import queue_cards
from engine.queries.queue_cards import Card, Place, Wanted
from services.dashboard.page_route import PageRoute
from services.dashboard.reasons import Why, why
from services.dashboard.rendering import render
from services.dashboard.visitor import Visitor, seeing
from services.media_links import MediaLinks

router = APIRouter(route_class=PageRoute)

CARDS = 24
STATES = ("queued", "open", "labelled", "dropped")


@dataclass(frozen=True)
class CardView:
    """A card and what is made of it for the page."""

    card: Card
    why: Why
    picture: str
    large: str
    task: str | None


@router.get("/queue")
def queue(
    request: Request,
    who: Annotated[Visitor, Depends(seeing("queue:read"))],
    state: str = "",
    campaign: str = "",
    arm: str = "",
    head: str = "",
    after: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """A page of the queue. Everything that narrows it stands in the address."""
    # Nothing asked for is what is labelled next; "all" is everything.
    wanted = Wanted({"": "queued", "all": None}.get(state, state), campaign or None, arm or None, head or None)
    project_id = who.principal.project_id
    with who.wiring.database.read() as session:
        if not state and not queue_cards.counts_by_state(session, project_id, wanted).get("queued"):
            state, wanted = "all", replace(wanted, state=None)  # nothing waits: show what there is
        found = queue_cards.cards(session, project_id, wanted, CARDS + 1, _place(after))
        counts = queue_cards.counts_by_state(session, project_id, wanted)
        choices = queue_cards.choices(session, project_id)
    shown = found[:CARDS]
    rest = {"campaign": campaign, "arm": arm, "head": head}
    return render(
        request,
        "queue.html",
        visitor=who,
        views=[card_view(who, card) for card in shown],
        counts=counts,
        choices=choices,
        wanted=wanted,
        state=state or "queued",
        states=[(name, _address(rest, state=name), counts.get(name, 0)) for name in STATES]
        + [("all", _address(rest, state="all"), sum(counts.values()))],
        heads=_heads_of(shown),
        asked_for={head for card in shown for head in card.heads},
        next=_address(rest, state=state, after=f"{shown[-1].priority!r}~{shown[-1].id}") if found[CARDS:] else None,
        first=_address(rest, state=state) if after else None,
        filtered=any(rest.values()),
    )


def card_view(who: Visitor, card: Card) -> CardView:
    """With links: to a pinned picture a signed one, to others our own, and to the task in the label tool."""
    picture, large = f"/frames/{card.subject_id}/picture", f"/frames/{card.subject_id}/picture?large=true"
    if card.picture_sha256 is not None:
        large = MediaLinks(who.wiring.settings).path(card.picture_sha256)
        picture = f"{large}?w=640"
    tool = who.wiring.settings.label_studio_url
    task = None
    if tool and card.tool_project is not None and card.tool_task is not None:
        task = f"{tool}/projects/{card.tool_project}/data?task={card.tool_task}"
    return CardView(card, why(card), picture, large, task)


def _heads_of(cards: list[Card]) -> list[str]:
    """Heads that a model has said something of, in a fixed order: each gets a toggle and a key."""
    return sorted({told.head for card in cards for told in card.uncertainties})


def _address(rest: dict[str, str], **more: Any) -> str:
    given = {key: value for key, value in {**rest, **more}.items() if value}
    return f"/queue?{urlencode(given)}" if given else "/queue"


def _place(after: str) -> Place | None:
    if not after:
        return None
    priority, _, identity = after.partition("~")
    try:
        return Place(float(priority), uuid.UUID(identity))
    except ValueError as wrong:
        raise Invalid("bad-place", f"{after!r} is no place in the queue", "start at the front: /queue") from wrong
