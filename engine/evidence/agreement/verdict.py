"""Verdict: what several people's say on one subject comes to, head by head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from engine.domain.answers import Answer
from engine.domain.ontology import Head
from engine.evidence.agreement.consensus import consensus


class Said(StrEnum):
    """What a person did with a task: the outcomes of an annotation."""

    SUBMITTED = "submitted"
    SKIPPED = "skipped"
    UNUSABLE = "unusable"


class Outcome(StrEnum):
    """What it comes to."""

    NOTHING = "nothing"  # nobody has said anything
    SKIPPED = "skipped"  # nobody would say: skipped is not empty
    INCOMPLETE = "incomplete"  # fewer people than were asked for
    UNUSABLE = "unusable"  # most say that nothing can be labelled here
    DISPUTED = "disputed"  # they differ, for some head at least
    SETTLED = "settled"


@dataclass(frozen=True)
class Vote:
    """One person's say. A head that is missing in `answers` was not answered, which is not an empty answer."""

    annotator: str
    said: Said
    answers: Mapping[str, Answer] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """`chosen` by head: the index of the vote whose answer becomes the label, and `supporters` those who agree with it.

    `agreement` by head, where two people or more answered it. `unanswered`: heads that nobody answered.
    """

    outcome: Outcome
    chosen: Mapping[str, int] = field(default_factory=dict)
    supporters: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    agreement: Mapping[str, float] = field(default_factory=dict)
    disputed: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()


def verdict(heads: Sequence[Head], votes: Sequence[Vote], people: int = 1) -> Verdict:
    """What `votes` (one a person) come to for `heads`, when `people` were to be asked.

    Who skipped has no say. Heads that are agreed on are chosen even while others are disputed.
    """
    opinions = [index for index, vote in enumerate(votes) if vote.said is not Said.SKIPPED]
    if not opinions:
        return Verdict(Outcome.SKIPPED if votes else Outcome.NOTHING)
    if len(opinions) < people:
        return Verdict(Outcome.INCOMPLETE)
    unusable = sum(votes[index].said is Said.UNUSABLE for index in opinions)
    if 2 * unusable > len(opinions):
        return Verdict(Outcome.UNUSABLE)
    if 2 * unusable == len(opinions):
        return Verdict(Outcome.DISPUTED, disputed=tuple(head.name for head in heads))
    chosen: dict[str, int] = {}
    supporters: dict[str, tuple[int, ...]] = {}
    agreement: dict[str, float] = {}
    disputed, unanswered = [], []
    for head in heads:
        voters = [index for index in opinions if head.name in votes[index].answers]
        if not voters:
            unanswered.append(head.name)
            continue
        found = consensus(head, [votes[index].answers[head.name] for index in voters])
        if len(voters) > 1:
            agreement[head.name] = found.agreement
        if found.index is None:
            disputed.append(head.name)
        else:
            chosen[head.name] = voters[found.index]
            supporters[head.name] = tuple(voters[index] for index in found.supporters)
    if len(unanswered) == len(heads):
        return Verdict(Outcome.SKIPPED, unanswered=tuple(unanswered))
    return Verdict(
        Outcome.DISPUTED if disputed else Outcome.SETTLED,
        chosen,
        supporters,
        agreement,
        tuple(disputed),
        tuple(unanswered),
    )
