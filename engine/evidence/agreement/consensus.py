"""Consensus: of several people's answers, the one that most of them would sign."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.domain.answers import Answer
from engine.domain.ontology import Head, Kind
from engine.evidence.agreement import boxes, choice, mask, polylines

AGREEMENTS: Mapping[Kind, Callable[[Head, Answer, Answer], float]] = {
    Kind.BOXES: boxes.agreement,
    Kind.POLYLINES: polylines.agreement,
    Kind.MASK: mask.agreement,
    Kind.CHOICE: choice.agreement,
}

THRESHOLD = 0.7
"""Two people agree from here on, unless the head's option `agreement` says otherwise."""


@dataclass(frozen=True)
class Consensus:
    """`index` of the answer that stands for all, None where there is no majority for any; its mean agreement with the
    others, or the best there was; and the indices of those that agree with it."""

    index: int | None
    agreement: float
    supporters: tuple[int, ...]


def consensus(head: Head, answers: Sequence[Answer]) -> Consensus:
    """The medoid among those that agree with a majority, themselves included; the earlier one where two are as close.

    Raises ValueError for a kind that nobody can agree on yet, or without an answer.
    """
    if not answers:
        raise ValueError(f"head {head.name!r}: nobody has answered")
    if head.kind not in AGREEMENTS:
        raise ValueError(f"head {head.name!r}: no agreement is defined for the kind {head.kind}")
    count = len(answers)
    pairs = np.ones((count, count))
    for row in range(count):
        for column in range(row):
            pairs[row, column] = AGREEMENTS[head.kind](head, answers[row], answers[column])
            pairs[column, row] = pairs[row, column]
    agreeing = pairs >= float(head.options.get("agreement", THRESHOLD))
    means = (pairs.sum(axis=1) - 1) / max(count - 1, 1) if count > 1 else np.ones(1)
    best = min(range(count), key=lambda index: (-int(agreeing[index].sum()), -float(means[index]), index))
    supporters = tuple(int(index) for index in np.flatnonzero(agreeing[best]))
    if 2 * len(supporters) <= count:
        return Consensus(None, float(means[best]), ())
    return Consensus(best, float(means[best]), supporters)
