"""What the gate is asked: the evidence on two models and the rules that were fixed before anyone looked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from engine.domain.ontology import Head
from engine.evidence.noise import Margin
from engine.evidence.paired_bootstrap import RESAMPLES
from engine.evidence.statistic import Statistic


class WaiverName(StrEnum):
    """The rules that a person may waive, on record. No other can be."""

    WITHIN_ONE_DRIVE = "within_one_drive"  # fewer split groups than it takes: clips are resampled in place of them
    RETIRED_HEAD = "retired_head"  # a head of the line or of the champion that the challenger does not answer
    UNLEARNT_HEAD = "unlearnt_head"  # a head that no champion has learnt yet


@dataclass(frozen=True)
class Waiver:
    """One waived rule: who answers for it, and why. `head` narrows it to one head; all but
    within_one_drive need it.
    """

    name: WaiverName
    by: str
    why: str
    head: str | None = None

    def __post_init__(self) -> None:
        if not self.by.strip() or not self.why.strip():
            raise ValueError(f"waiver {self.name}: say who waives it and why")


@dataclass(frozen=True)
class GoldenSubject:
    """One subject of the golden set. `heads`: those it has a golden label for. `slices`: such as
    ``time_of_day=night``.
    """

    id: str
    split_group: str
    clip_id: str
    heads: frozenset[str]
    slices: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ModelEvidence:
    """One model's statistics on a golden set: by head, then by subject id, so that no order can be wrong.

    `golden_hash` is that of the set the model was in fact judged on. `heads`: all that the model answers, judged or
    not; a champion's head without statistics refuses, it doesn't count as new.
    """

    model_version: str
    golden_hash: str
    heads: frozenset[str]
    statistics: Mapping[str, Mapping[str, Statistic]]


@dataclass(frozen=True)
class GateRules:
    """What a challenger must show. `alpha` is each one-sided bound's error.

    `min_groups`: split groups a head's golden labels must come from; with the waiver, `min_clips` clips. `preserved`:
    a margin may give away at most 1 - `preserved` of what the champion has over the dumb baseline (the "preserved
    fraction" of non-inferiority trials, FDA guidance of 2016), where the baseline was judged too; None sets no such
    limit. `learnt`: a champion that is better than the dumb baseline by this much, in the head's metric, has learnt a
    head, and the waiver for one that isn't ends. `enforce_slices`: slices with `slice_min_groups` groups must be
    non-inferior too, else they are reported only.
    """

    alpha: float = 0.05
    resamples: int = RESAMPLES
    min_groups: int = 40
    min_clips: int = 8
    preserved: float | None = 0.5
    learnt: float = 0.01
    enforce_slices: bool = False
    slice_min_groups: int = 20


@dataclass(frozen=True)
class GateInput:
    """All that a verdict depends on; the same input gives the same verdict.

    `heads`: those that the model line must answer. `targets`: the heads declared, before the training, to get better.
    `margins` by head, from measured noise. `champion` None is the line's first. `baseline`: the dumb baseline's
    evidence, needed for a first champion and for new heads.
    """

    heads: Sequence[Head]
    golden_hash: str
    golden: Sequence[GoldenSubject]
    challenger: ModelEvidence
    champion: ModelEvidence | None
    baseline: ModelEvidence | None
    targets: Sequence[str]
    margins: Mapping[str, Margin]
    seed: int
    rules: GateRules = field(default_factory=GateRules)
    waivers: Sequence[Waiver] = ()

    def waived(self, name: WaiverName, head: str) -> Waiver | None:
        """The waiver of this rule that holds for this head."""
        for waiver in self.waivers:
            for_all = waiver.head is None and name is WaiverName.WITHIN_ONE_DRIVE
            if waiver.name is name and (for_all or waiver.head == head):
                return waiver
        return None
