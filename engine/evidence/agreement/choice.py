"""Choices: the same or not."""

from __future__ import annotations

from engine.domain.answers import Answer
from engine.domain.ontology import Head


def agreement(head: Head, first: Answer, second: Answer) -> float:
    """1 for the same choice, else 0."""
    return float(first.value["choice"] == second.value["choice"])
