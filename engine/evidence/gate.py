"""The gate: may the challenger take the champion's place?

Every rule must hold, and what can't be measured refuses. With both judged on the same frozen golden set:
- superiority on each target head declared before the training: the lower bound of (challenger - champion) is above 0;
- non-inferiority on every other head they share: that bound is not below the head's margin, which is measured noise;
- an absolute floor for new heads and for the first champion: the lower bound of (challenger - dumb baseline) is above
0. As all must hold at once, the chance that a challenger no better on a target passes stays at alpha however many
heads there are (the intersection-union test: Berger, "Multiparameter Hypothesis Testing and Acceptance Sampling",
1982).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from engine.domain.ontology import DEFAULT_METRIC, Head
from engine.evidence import noise
from engine.evidence.gate_input import GateInput, GoldenSubject, ModelEvidence, WaiverName
from engine.evidence.paired_bootstrap import Interval, paired_difference, sign_of
from engine.evidence.statistic import KINDS, metric, missing


class Rule(StrEnum):
    """What a row had to show."""

    SUPERIORITY = "superiority"
    NON_INFERIORITY = "non_inferiority"
    FLOOR = "floor"
    REPORTED = "reported"  # a slice that is shown and not judged


@dataclass(frozen=True)
class Reason:
    """One line of why: the head (None: the whole comparison), the rule, whether it held, and a sentence with the
    figures.
    """

    head: str | None
    rule: str
    held: bool
    text: str


@dataclass(frozen=True)
class Row:
    """One comparison. `reference` is the champion, or the dumb baseline under the floor rule.

    `challenger` and `reference` are metrics as they are; `difference`, `low`, `high` are signed so that positive is
    better; `bound` is what `low` had to reach: minus the margin, or 0 (which it must pass). `missing`: golden subjects
    that the challenger had no answer for, each scored as wrong. `resampled`: "split group", or "clip" under the
    waiver.
    """

    head: str
    slice: str | None
    rule: Rule
    metric: str
    challenger: float
    reference: float
    reference_name: str
    difference: float
    low: float
    high: float
    bound: float
    passed: bool
    groups: int
    subjects: int
    missing: int
    resampled: str


@dataclass(frozen=True)
class GateVerdict:
    """`kind` is "promote" or "refuse". `scope` is "golden set", or "within one drive" where that was waived for some
    head.
    """

    passed: bool
    kind: str
    scope: str
    reasons: Sequence[Reason]
    rows: Sequence[Row]

    def to_document(self) -> dict[str, Any]:
        """JSON-able; numbers that aren't finite become null."""
        return {
            "passed": self.passed,
            "kind": self.kind,
            "scope": self.scope,
            "reasons": [asdict(reason) for reason in self.reasons],
            "rows": [{key: _plain(value) for key, value in asdict(row).items()} for row in self.rows],
        }


def decide(gate_input: GateInput) -> GateVerdict:
    """The verdict. It never raises for evidence that is missing, broken or too little: it refuses and says why."""
    reasons = _whole_comparison(gate_input)
    rows: list[Row] = []
    if all(reason.held for reason in reasons):
        for head in gate_input.heads:
            try:
                more_reasons, more_rows = _judge_head(gate_input, head)
            except (KeyError, IndexError, ValueError, TypeError) as broken:
                text = f"head {head.name!r}: its statistics can't be read ({type(broken).__name__}: {broken})"
                more_reasons, more_rows = [Reason(head.name, "evidence", False, text)], []
            reasons += more_reasons
            rows += more_rows
    if all(reason.held for reason in reasons) and not any(row.passed for row in rows if row.slice is None):
        reasons.append(Reason(None, "evidence", False, "nothing was shown on any head: waivers alone promote nobody"))
    passed = bool(rows) and all(reason.held for reason in reasons)
    scope = "within one drive" if any(row.resampled == "clip" for row in rows) else "golden set"
    return GateVerdict(passed, "promote" if passed else "refuse", scope, reasons, rows)


def _whole_comparison(given: GateInput) -> list[Reason]:
    """What must be right before any head is looked at; reasons that don't hold, and waivers that were used."""
    reasons: list[Reason] = []

    def refuse(rule: str, text: str, head: str | None = None) -> None:
        reasons.append(Reason(head, rule, False, text))

    names = [head.name for head in given.heads]
    if not given.golden_hash:
        refuse("same golden set", "the golden set has no hash, so nobody knows what was judged on it")
    if not given.golden:
        refuse("evidence", "the golden set is empty")
    if len({subject.id for subject in given.golden}) != len(given.golden):
        refuse("evidence", "the golden set names a subject twice")
    for role, model in _models(given):
        if model.golden_hash != given.golden_hash:
            refuse(
                "same golden set",
                f"the {role} {model.model_version} was judged on golden set {model.golden_hash[:12]}, not on "
                f"{given.golden_hash[:12]}: judge both on the same one",
            )
    if not names:
        refuse("evidence", "no head was named to judge")
    if given.champion is not None:
        if not given.targets:
            refuse("target", "no target head was declared before the training")
        for target in given.targets:
            if target not in names:
                refuse("target", f"target head {target!r} is not one of the heads to judge", target)
        for gone in sorted(given.champion.heads - set(names)):
            waiver = given.waived(WaiverName.RETIRED_HEAD, gone)
            if waiver is None:
                refuse("vanished head", f"the champion answers head {gone!r}, and the challenger no longer would", gone)
            else:
                text = f"head {gone!r} is retired, waived by {waiver.by}: {waiver.why}"
                reasons.append(Reason(gone, "vanished head", True, text))
    return reasons


def _judge_head(given: GateInput, head: Head) -> tuple[list[Reason], list[Row]]:
    retired = given.waived(WaiverName.RETIRED_HEAD, head.name)
    if retired is not None and head.name not in given.challenger.heads and head.name not in given.targets:
        text = f"head {head.name!r} is not answered by the challenger, waived by {retired.by}: {retired.why}"
        return [Reason(head.name, "vanished head", True, text)], []
    subjects = [subject for subject in given.golden if head.name in subject.heads]
    shared = given.champion is not None and head.name in given.champion.heads
    against = given.champion if shared else given.baseline
    role = "champion" if shared else "dumb baseline"
    rule = Rule.FLOOR if not shared else Rule.SUPERIORITY if head.name in given.targets else Rule.NON_INFERIORITY

    def refused(text: str, broken: str = "evidence") -> tuple[list[Reason], list[Row]]:
        return [Reason(head.name, broken, False, f"head {head.name!r}: {text}")], []

    gap = _gap(given, head, subjects, against, role)
    if gap is not None or against is None:
        return refused(*(gap or ("nothing to hold it against", "evidence")))
    silent = missing([given.challenger.statistics[head.name][subject.id] for subject in subjects])

    reasons: list[Reason] = []
    groups = len({subject.split_group for subject in subjects})
    key: Callable[[GoldenSubject], Hashable] = lambda subject: subject.split_group  # noqa: E731
    resampled = "split group"
    if groups < given.rules.min_groups:
        few = f"its golden labels come from {groups} split groups, {given.rules.min_groups} are needed"
        waiver = given.waived(WaiverName.WITHIN_ONE_DRIVE, head.name)
        clips = len({(subject.split_group, subject.clip_id) for subject in subjects})
        if waiver is None:
            return refused(few, "groups")
        if clips < max(2, given.rules.min_clips):
            return refused(f"{few}; under the waiver {given.rules.min_clips} clips are, there are {clips}", "groups")
        text = (
            f"head {head.name!r}: {few}; judged within one drive over {clips} clips, "
            f"waived by {waiver.by}: {waiver.why}"
        )
        reasons.append(Reason(head.name, "groups", True, text))
        key, resampled = lambda subject: (subject.split_group, subject.clip_id), "clip"
    margin = 0.0
    if rule is Rule.NON_INFERIORITY:
        if head.name not in given.margins or not _positive(given.margins[head.name].value):
            return refused("the noise between seeds was not measured, so it has no margin", "margin")
        margin, note = _capped_margin(given, head, subjects)
        reasons += note

    interval = _compare(given, head, subjects, given.challenger, against, key)
    if not all(math.isfinite(value) for value in (interval.first, interval.second)):
        return refused(f"the metric could not be computed (challenger {interval.first}, {role} {interval.second})")
    row = _row(head, None, rule, interval, role, -margin, silent, resampled)
    reasons.append(_reason(given, row, head, subjects))
    slice_reasons, slice_rows = _judge_slices(given, head, subjects, against, key, role, margin, row)
    return reasons + slice_reasons, [row, *slice_rows]


def _gap(
    given: GateInput, head: Head, subjects: Sequence[GoldenSubject], against: ModelEvidence | None, role: str
) -> tuple[str, str] | None:
    """What is missing to compare the two models on this head, and the rule that it breaks; None when all is there."""
    if head.kind not in KINDS or head.metric is not DEFAULT_METRIC[head.kind]:
        return f"a head of kind {head.kind} can't be judged by {head.metric}", "evidence"
    if not subjects:
        return "the golden set has no label for it", "evidence"
    if against is None:
        return "nothing to hold it against: without a champion a head needs the dumb baseline's evidence", "evidence"
    vanished = "vanished head" if role == "champion" else "evidence"
    for whose, model in (("challenger", given.challenger), (role, against)):
        known = model.statistics.get(head.name)
        if known is None:
            return f"the {whose} {model.model_version} was not judged on it", vanished
        absent = [subject.id for subject in subjects if subject.id not in known]
        if absent:
            count = f"{len(absent)} of {len(subjects)} golden subjects"
            return f"the {whose} has no evidence on {count} ({absent[0]} …)", "evidence"
    unsaid = missing([against.statistics[head.name][subject.id] for subject in subjects])
    if unsaid:
        return f"the {role} has no answer for {unsaid} golden subjects, which would flatter the challenger", "evidence"
    if missing([given.challenger.statistics[head.name][subject.id] for subject in subjects]) == len(subjects):
        return "the challenger answered for no golden subject", "vanished head"
    return None


def _judge_slices(
    given: GateInput,
    head: Head,
    subjects: Sequence[GoldenSubject],
    against: ModelEvidence,
    key: Callable[[GoldenSubject], Hashable],
    role: str,
    margin: float,
    whole: Row,
) -> tuple[list[Reason], list[Row]]:
    """Each slice's comparison. A slice has fewer groups, so its margin is wider by the root of the ratio."""
    reasons, rows = [], []
    if whole.rule is Rule.SUPERIORITY and head.name in given.margins:
        margin = given.margins[head.name].value  # a target need not get better in each of its slices
    for name in sorted(set().union(*(subject.slices for subject in subjects))):
        inside = [subject for subject in subjects if name in subject.slices]
        groups = len({key(subject) for subject in inside})
        if groups < 2:
            continue
        judged = given.rules.enforce_slices and role == "champion" and groups >= given.rules.slice_min_groups
        interval = _compare(given, head, inside, given.challenger, against, key)
        wider = margin * math.sqrt(whole.groups / groups)
        silent = missing([given.challenger.statistics[head.name][subject.id] for subject in inside])
        rule = Rule.NON_INFERIORITY if judged else Rule.REPORTED
        row = _row(head, name, rule, interval, role, -wider, silent, whole.resampled)
        rows.append(row)
        if judged:
            reasons.append(_reason(given, row, head, subjects))
    return reasons, rows


def _compare(
    given: GateInput,
    head: Head,
    subjects: Sequence[GoldenSubject],
    first: ModelEvidence,
    second: ModelEvidence,
    key: Callable[[GoldenSubject], Hashable],
) -> Interval:
    ordered = sorted(subjects, key=lambda subject: subject.id)
    return paired_difference(
        head,
        [first.statistics[head.name][subject.id] for subject in ordered],
        [second.statistics[head.name][subject.id] for subject in ordered],
        [key(subject) for subject in ordered],
        seed=given.seed,
        alpha=given.rules.alpha,
        resamples=given.rules.resamples,
    )


def _capped_margin(given: GateInput, head: Head, subjects: Sequence[GoldenSubject]) -> tuple[float, list[Reason]]:
    """The head's margin, made smaller where it would give away more than the rules let it of the champion's worth."""
    margin = given.margins[head.name].value
    worth = _worth(given, head, subjects)
    if given.rules.preserved is None or worth is None:
        return margin, []
    # Never below what two seeds differ by luck, else a head that nobody has learnt yet would hold all others back.
    limit = max(noise.FLOOR, (1 - given.rules.preserved) * worth) if math.isfinite(worth) else 0.0
    if margin <= limit:
        return margin, []
    text = (
        f"head {head.name!r}: the measured margin {margin:.4f} is cut to {limit:.4f}, as the champion is only "
        f"{worth:.4f} better than the dumb baseline"
    )
    return limit, [Reason(head.name, "margin", True, text)]


def _row(
    head: Head, part: str | None, rule: Rule, interval: Interval, role: str, bound: float, silent: int, resampled: str
) -> Row:
    strict = rule in (Rule.SUPERIORITY, Rule.FLOOR)
    bound = 0.0 if strict else bound
    passed = math.isfinite(interval.difference) and (interval.low > 0.0 if strict else interval.low >= bound)
    return Row(
        head=head.name,
        slice=part,
        rule=rule,
        metric=str(head.metric),
        challenger=interval.first,
        reference=interval.second,
        reference_name=role,
        difference=interval.difference,
        low=interval.low,
        high=interval.high,
        bound=bound,
        passed=passed or rule is Rule.REPORTED,
        groups=interval.groups,
        subjects=interval.subjects,
        missing=silent,
        resampled=resampled,
    )


def _reason(given: GateInput, row: Row, head: Head, subjects: Sequence[GoldenSubject]) -> Reason:
    """What came of the row. A head that has still to be learnt may be waived: a line has to start somewhere, and luck
    with a head that is worth nothing must not hold the others back.
    """
    waiver = given.waived(WaiverName.UNLEARNT_HEAD, head.name)
    waivable = row.rule in (Rule.FLOOR, Rule.NON_INFERIORITY) and head.name not in given.targets
    if row.passed or waiver is None or not waivable:
        return Reason(row.head, row.rule, row.passed, _sentence(row))
    if row.rule is Rule.NON_INFERIORITY:
        worth = _worth(given, head, subjects)
        if worth is None or not worth < given.rules.learnt:
            known = worth is not None and math.isfinite(worth)
            why = "the champion has learnt it" if known else "what the champion is worth on it is not known"
            return Reason(row.head, row.rule, False, f"{_sentence(row)}; it can't be waived: {why}")
    return Reason(row.head, row.rule, True, f"{_sentence(row)}, waived by {waiver.by}: {waiver.why}")


def _worth(given: GateInput, head: Head, subjects: Sequence[GoldenSubject]) -> float | None:
    """How much better the champion is than the dumb baseline; None where the baseline was not judged on it."""
    models = [model for model in (given.champion, given.baseline) if model is not None]
    known = [model.statistics.get(head.name, {}) for model in models]
    if len(known) < 2 or any(subject.id not in statistics for statistics in known for subject in subjects):
        return None
    champion, baseline = (metric(head, [statistics[subject.id] for subject in subjects]) for statistics in known)
    return sign_of(head) * (champion - baseline)


def _sentence(row: Row) -> str:
    where = f"head {row.head!r}" + (f" in {row.slice}" if row.slice else "")
    wanted = {
        Rule.SUPERIORITY: "must be above 0 on a target",
        Rule.FLOOR: "must be above 0",
        Rule.NON_INFERIORITY: f"must not be below {row.bound:+.4f}",
        Rule.REPORTED: "is not judged",
    }[row.rule]
    silent = f"; {row.missing} subjects without an answer count as wrong" if row.missing else ""
    figures = f"difference {row.difference:+.4f} [{row.low:+.4f}, {row.high:+.4f}]"
    return (
        f"{where}: {row.metric} {row.challenger:.4f}, {row.reference_name} {row.reference:.4f}: {figures} over "
        f"{row.groups} {row.resampled}s; the lower bound {wanted}: {'held' if row.passed else 'not held'}{silent}"
    )


def _models(given: GateInput) -> list[tuple[str, ModelEvidence]]:
    roles: Mapping[str, ModelEvidence | None] = {
        "challenger": given.challenger,
        "champion": given.champion,
        "dumb baseline": given.baseline,
    }
    return [(role, model) for role, model in roles.items() if model is not None]


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
