"""Why a subject was chosen, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.queries.queue_cards import Card
from services.dashboard.rendering import count, spoken

# Distances between unit embeddings run from 0 (the same) to 2 (opposite).
FAR, NEAR = 0.8, 0.3


@dataclass(frozen=True)
class Why:
    """The reason in a sentence, and the figures that it comes from, for whoever doubts it."""

    sentence: str
    figures: str


def why(card: Card) -> Why:
    """From the reason that was recorded when the subject was chosen."""
    return _control(card) if card.arm == "control" else _chosen(card.reason)


def _control(card: Card) -> Why:
    p = card.inclusion_probability
    chance = "" if p is None else f", p = {_small_percent(p)}"
    pool = card.reason.get("pool_size")
    drawn = card.reason.get("drawn")
    figures = f"{drawn} drawn from a pool of {count(pool)}" if pool else ""
    return Why(f"Random control{chance}: labelled blind, so that the pool’s true quality can be estimated", figures)


def _chosen(reason: dict[str, Any]) -> Why:
    parts = []
    head, quantile = reason.get("head"), reason.get("quantile")
    if head is not None and quantile is not None:
        parts.append(f"{spoken(str(head))} uncertainty {_above(float(quantile))}")
    distance = reason.get("distance")
    if distance is not None:
        parts.append(_far(float(distance)))
    names = [spoken(str(trigger["name"])) for trigger in reason.get("triggers", ())]
    if names:
        parts.append(f"trigger{'s' if len(names) > 1 else ''} {', '.join(names)}")
    rank = reason.get("uncertainty_rank")
    figures = [] if rank is None else [f"number {int(rank) + 1} by uncertainty in its batch’s short list"]
    if distance is not None:
        figures.append(f"embedding distance {float(distance):.2f} of at most 2 to the nearest labelled frame")
    for trigger in reason.get("triggers", ()):
        settings = ", ".join(f"{key} {value}" for key, value in trigger.get("parameters", {}).items())
        figures.append(f"{trigger['name']}({settings})")
    sentence = "; ".join(parts) or "chosen; no reason was recorded"
    return Why(sentence[0].upper() + sentence[1:], "; ".join(figures))


def _above(quantile: float) -> str:
    if quantile >= 1:
        return "above all of the reference"
    if quantile <= 0:
        return "below all of the reference"
    # Rounded down: "above 100%" would be a lie at 99.7.
    return f"above {int(quantile * 100)}% of the reference"


def _far(distance: float) -> str:
    if distance >= FAR:
        return "far from what’s labelled"
    return "close to what’s labelled" if distance < NEAR else "some way from what’s labelled"


def _small_percent(p: float) -> str:
    digits = 1 if p >= 0.001 else 3
    return f"{100 * p:.{digits}f}%"
