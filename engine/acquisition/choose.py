"""Choose what is worth labelling: a random control arm first, then the uncertain, diverse and not redundant.

The control arm is a simple random sample of the whole pool (no trigger, no suppression), so the pool's true metrics
can be estimated from it with inverse inclusion probabilities (Horvitz & Thompson, "A Generalization of Sampling
Without Replacement From a Finite Universe", 1952). The chosen arm takes the most uncertain candidates and spreads its
picks over them (core-set, arXiv:1708.00489). Uncertainty alone picks near copies; diversity alone picks outliers of no
use.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from engine.acquisition.candidates import AcquisitionError, Candidate, Instant
from engine.acquisition.k_center import greedy_k_center, unit_embeddings
from engine.acquisition.nms import suppress
from engine.acquisition.triggers import Trigger


class Arm(StrEnum):
    """Why a subject is in the batch: drawn at random, or picked."""

    CONTROL = "control"
    CHOSEN = "chosen"


@dataclass(frozen=True)
class Choice:
    """One subject of the batch.

    `inclusion_probability` of a control subject: the probability, before the draw, that it would be in the control
    arm. A chosen subject has None: picks are deterministic, so they are no probability sample and must not be weighted
    as one. `rank` is its place in the batch from 0: control comes first, so a batch that is cut short keeps its
    control arm.
    """

    subject_id: str
    arm: Arm
    inclusion_probability: float | None
    rank: int
    reason: Mapping[str, Any] = field(default_factory=dict)


def choose(
    candidates: Sequence[Candidate],
    labelled_embeddings: ArrayLike,
    budget: int,
    *,
    seed: int,
    heads: Sequence[str],
    control_fraction: float = 0.1,
    window_ns: int = 1_000_000_000,
    triggers: Sequence[Trigger] = (),
    occupied: Iterable[Instant] = (),
    oversampling: int = 4,
) -> list[Choice]:
    """At most `budget` choices, in rank order; the same seed and set give the same ones in any input order.

    `labelled_embeddings` (L, D) in the candidates' embedding space. `heads` are those wanted: a subject is as
    uncertain as its most uncertain wanted head. `triggers`: a chosen subject hits at least one, if there are any.
    `occupied`: instants already labelled or queued. The k-center step picks among the `oversampling` x budget most
    uncertain. Fewer than `budget` come back when the rest are redundant or uninteresting. Use another seed for every
    batch.

    With a fractional share the arm's size is rounded at random, so that its expectation is exact: a budget of 5 at 10%
    draws one control subject in half of the batches, and the recorded probability is 0.5 / pool size.

    Raises AcquisitionError: no head wanted, twice the same subject, a quantile outside [0, 1], a bad embedding or
    fraction.
    """
    if not heads:
        raise AcquisitionError("name at least one head to choose for")
    if not 0.0 <= control_fraction <= 1.0:
        raise AcquisitionError(f"control_fraction is {control_fraction}: give a number in [0, 1]")
    if oversampling < 1:
        raise AcquisitionError(f"oversampling is {oversampling}: give 1 or more")
    pool = sorted(candidates, key=lambda candidate: candidate.subject_id)
    _check(pool)
    size = min(budget, len(pool))
    if size <= 0:
        return []
    generator = np.random.default_rng(seed)
    expected = size * control_fraction
    drawn = math.floor(expected) + int(generator.random() < expected - math.floor(expected))
    places = sorted(int(i) for i in generator.choice(len(pool), size=drawn, replace=False))
    control = [pool[place] for place in generator.permutation(places)] if places else []
    draw = {"seed": seed, "pool_size": len(pool), "control_fraction": control_fraction, "drawn": drawn}
    choices = [
        Choice(candidate.subject_id, Arm.CONTROL, expected / len(pool), rank, dict(draw))
        for rank, candidate in enumerate(control)
    ]
    taken = {candidate.subject_id for candidate in control}
    rest = [candidate for candidate in pool if candidate.subject_id not in taken]
    # A control subject will be labelled too: its neighbours are redundant, and it is a centre.
    busy = [*occupied, *(Instant(c.drive_id, c.stream, c.capture_ns) for c in control)]
    centres = _stack(labelled_embeddings, control)
    return choices + _chosen(
        rest, centres, size - drawn, len(choices), sorted(set(heads)), window_ns, triggers, busy, oversampling
    )


def _chosen(
    rest: Sequence[Candidate],
    centres: ArrayLike,
    budget: int,
    first_rank: int,
    heads: Sequence[str],
    window_ns: int,
    triggers: Sequence[Trigger],
    occupied: Sequence[Instant],
    oversampling: int,
) -> list[Choice]:
    hits = {c.subject_id: [t for t in triggers if t.hits(c)] for c in rest}
    scored = [c for c in rest if any(h in c.quantiles for h in heads) and (hits[c.subject_id] or not triggers)]
    # Scores past the reference's end are all 1: among equals, the one that is unsure for more heads comes first.
    means = [float(np.mean([c.quantiles[h] for h in heads if h in c.quantiles])) for c in scored]
    tops = [max((h for h in heads if h in c.quantiles), key=lambda h: c.quantiles[h]) for c in scored]
    order = sorted(range(len(scored)), key=lambda i: (-scored[i].quantiles[tops[i]], -means[i], scored[i].subject_id))
    place = {index: rank for rank, index in enumerate(order)}
    kept = suppress(scored, [-float(place[i]) for i in range(len(scored))], window_ns, occupied)
    short = kept[: max(0, oversampling * budget)]
    try:
        picks, distances = greedy_k_center(
            np.asarray([scored[i].embedding for i in short], dtype=np.float64), centres, budget
        )
    except ValueError as wrong:
        raise AcquisitionError(str(wrong)) from wrong
    choices = []
    for rank, (pick, distance) in enumerate(zip(picks, distances, strict=True), start=first_rank):
        candidate, head = scored[short[pick]], tops[short[pick]]
        reason = {
            "head": head,
            "quantile": candidate.quantiles[head],
            "uncertainty_rank": pick,
            "distance": distance,
            "triggers": [{**t.to_document(), "hash": t.hash} for t in hits[candidate.subject_id]],
        }
        choices.append(Choice(candidate.subject_id, Arm.CHOSEN, None, rank, reason))
    return choices


def _stack(labelled: ArrayLike, control: Sequence[Candidate]) -> ArrayLike:
    try:
        known = unit_embeddings(labelled)
        drawn = unit_embeddings([candidate.embedding for candidate in control])
    except ValueError as wrong:
        raise AcquisitionError(str(wrong)) from wrong
    if not known.size or not drawn.size:
        return known if known.size else drawn
    if known.shape[1] != drawn.shape[1]:
        raise AcquisitionError(f"candidates have {drawn.shape[1]} dimensions, labelled subjects {known.shape[1]}")
    return np.concatenate([known, drawn])


def _check(pool: Sequence[Candidate]) -> None:
    for before, after in pairwise(pool):
        if before.subject_id == after.subject_id:
            raise AcquisitionError(f"subject {after.subject_id} is in the pool twice")
    for candidate in pool:
        for head, quantile in candidate.quantiles.items():
            if not 0.0 <= quantile <= 1.0:
                raise AcquisitionError(
                    f"subject {candidate.subject_id}: quantile of {head!r} is {quantile}, not in [0, 1]"
                )
