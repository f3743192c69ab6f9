import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.domain.ontology import Head, Kind, Metric
from engine.evidence.gate import Rule, decide
from engine.evidence.gate_input import GateInput, GateRules, ModelEvidence
from engine.evidence.noise import Margin
from tests.engine.evidence.simulated_models import AREA, DEPTH, HASH, OBJECTS, SIGN, World, broken, put, without

WORLD = World(seed=1)
CHAMPION = WORLD.model("champion", 1)
BETTER = WORLD.model("challenger", 2, area=0.8, depth=0.3, sign=1.0)
BASELINE = WORLD.model("constant", 3, area=-3.0, depth=-3.0, sign=-3.0)


def test_a_better_challenger_is_promoted_and_every_head_says_why() -> None:
    verdict = decide(WORLD.question(BETTER, CHAMPION))
    assert verdict.passed
    assert (verdict.kind, verdict.scope) == ("promote", "golden set")
    whole = [row for row in verdict.rows if row.slice is None]
    assert [(row.head, row.rule) for row in whole] == [
        ("area", Rule.SUPERIORITY),
        ("depth", Rule.NON_INFERIORITY),
        ("sign", Rule.NON_INFERIORITY),
    ]
    assert all(row.groups == 50 and row.subjects == 100 and row.passed for row in whole)
    assert [row.bound for row in whole] == [0.0, -0.06, -0.15]
    depth = whole[1]
    assert depth.challenger < depth.reference  # an error: lower is better
    assert depth.difference == pytest.approx(depth.reference - depth.challenger)
    assert depth.low <= depth.difference <= depth.high
    document = json.loads(json.dumps(verdict.to_document(), allow_nan=False))
    assert document["rows"][0]["low"] == whole[0].low
    assert "head 'area': iou" in document["reasons"][0]["text"]


def test_the_same_question_has_the_same_verdict_in_any_order() -> None:
    first = decide(WORLD.question(BETTER, CHAMPION))
    assert first == decide(WORLD.question(BETTER, CHAMPION))
    turned = decide(WORLD.question(BETTER, CHAMPION, golden=WORLD.golden[::-1]))
    assert [replace(row, challenger=0, reference=0, difference=0, low=0, high=0) for row in turned.rows] == [
        replace(row, challenger=0, reference=0, difference=0, low=0, high=0) for row in first.rows
    ]
    assert [row.low for row in turned.rows] == pytest.approx([row.low for row in first.rows])


def test_the_same_model_again_is_not_better() -> None:
    verdict = decide(WORLD.question(CHAMPION, CHAMPION))
    assert broken(verdict) == [("area", Rule.SUPERIORITY)]
    assert all(row.difference == 0 for row in verdict.rows)


def test_a_worse_challenger_is_refused() -> None:
    verdict = decide(WORLD.question(WORLD.model("worse", 4, area=-0.8, depth=-2.0, sign=-2.0), CHAMPION))
    assert broken(verdict) == [
        ("area", Rule.SUPERIORITY),
        ("depth", Rule.NON_INFERIORITY),
        ("sign", Rule.NON_INFERIORITY),
    ]
    assert verdict.kind == "refuse"


def test_one_head_that_fell_back_refuses_however_good_the_others_are() -> None:
    verdict = decide(WORLD.question(WORLD.model("lopsided", 5, area=1.5, depth=-2.0, sign=1.0), CHAMPION))
    assert broken(verdict) == [("depth", Rule.NON_INFERIORITY)]
    reason = next(r for r in verdict.reasons if not r.held)
    assert "abs_rel" in reason.text
    assert "must not be below -0.0600: not held" in reason.text


def test_each_declared_target_must_get_better() -> None:
    only_area = WORLD.model("one", 6, area=1.0)
    assert decide(WORLD.question(only_area, CHAMPION, targets=["area"])).passed
    assert broken(decide(WORLD.question(only_area, CHAMPION, targets=["area", "sign"]))) == [("sign", Rule.SUPERIORITY)]


NAN = [float("nan")]
MISSING_EVIDENCE: dict[str, tuple[Callable[[], GateInput], tuple[str | None, str], str]] = {
    "empty golden set": (lambda: WORLD.question(BETTER, CHAMPION, golden=[]), (None, "evidence"), "is empty"),
    "subject twice": (
        lambda: WORLD.question(BETTER, CHAMPION, golden=WORLD.golden + WORLD.golden[:1]),
        (None, "evidence"),
        "a subject twice",
    ),
    "no golden hash": (
        lambda: WORLD.question(replace(BETTER, golden_hash=""), replace(CHAMPION, golden_hash=""), golden_hash=""),
        (None, "same golden set"),
        "has no hash",
    ),
    "statistics of another kind": (
        lambda: WORLD.question(
            replace(BETTER, statistics={h: BETTER.statistics["sign"] for h in BETTER.statistics}), CHAMPION
        ),
        ("depth", "evidence"),
        "can't be read \\(KeyError: 'relative'",
    ),
    "no head": (lambda: WORLD.question(BETTER, CHAMPION, heads=[]), (None, "evidence"), "no head"),
    "challenger on another golden set": (
        lambda: WORLD.question(replace(BETTER, golden_hash="b" * 64), CHAMPION),
        (None, "same golden set"),
        "the challenger challenger was judged on golden set bbbbbbbbbbbb",
    ),
    "champion on another golden set": (
        lambda: WORLD.question(BETTER, replace(CHAMPION, golden_hash="b" * 64)),
        (None, "same golden set"),
        "champion was judged on golden set bbbb",
    ),
    "no target": (lambda: WORLD.question(BETTER, CHAMPION, targets=[]), (None, "target"), "no target head"),
    "unknown target": (
        lambda: WORLD.question(BETTER, CHAMPION, targets=["x"]),
        ("x", "target"),
        "not one of the heads",
    ),
    "head without golden labels": (
        lambda: WORLD.question(BETTER, CHAMPION, golden=[replace(s, heads=s.heads - {"sign"}) for s in WORLD.golden]),
        ("sign", "evidence"),
        "no label for it",
    ),
    "challenger without a head": (
        lambda: WORLD.question(without(BETTER, "sign"), CHAMPION),
        ("sign", "vanished head"),
        "the challenger challenger was not judged on it",
    ),
    "champion without a metric it has": (
        lambda: WORLD.question(BETTER, without(CHAMPION, "sign"), baseline=BASELINE),
        ("sign", "vanished head"),
        "the champion champion was not judged on it",
    ),
    "head gone from the ontology": (
        lambda: WORLD.question(BETTER, CHAMPION, heads=[AREA, DEPTH]),
        ("sign", "vanished head"),
        "no longer would",
    ),
    "one subject not judged": (
        lambda: WORLD.question(without(BETTER, "depth", "s0007"), CHAMPION),
        ("depth", "evidence"),
        "no evidence on 1 of 100 golden subjects \\(s0007",
    ),
    "challenger never answered": (
        lambda: WORLD.question(put(BETTER, "sign", missing=[1.0]), CHAMPION),
        ("sign", "vanished head"),
        "answered for no golden subject",
    ),
    "champion did not answer": (
        lambda: WORLD.question(BETTER, put(CHAMPION, "sign", missing=[1.0], right=[0.0])),
        ("sign", "evidence"),
        "flatter the challenger",
    ),
    "not a number": (
        lambda: WORLD.question(put(BETTER, "depth", relative=NAN), CHAMPION),
        ("depth", "evidence"),
        "could not be computed",
    ),
    "champion is not a number": (
        lambda: WORLD.question(BETTER, put(CHAMPION, "area", union=NAN)),
        ("area", "evidence"),
        "could not be computed",
    ),
    "nothing to measure": (
        lambda: WORLD.question(put(BETTER, "depth", count=[0.0]), put(CHAMPION, "depth", count=[0.0])),
        ("depth", "evidence"),
        "could not be computed",
    ),
    "noise not measured": (
        lambda: WORLD.question(BETTER, CHAMPION, margins={"depth": Margin(0.06, 0.02, 2, 3)}),
        ("sign", "margin"),
        "noise between seeds was not measured",
    ),
    "broken margin": (
        lambda: WORLD.question(BETTER, CHAMPION, margins={h.name: Margin(float("nan"), 0, 2, 3) for h in WORLD.heads}),
        ("sign", "margin"),
        "not measured",
    ),
    "first champion without a baseline": (
        lambda: WORLD.question(BETTER, None),
        ("area", "evidence"),
        "needs the dumb baseline's evidence",
    ),
    "baseline without a head": (
        lambda: WORLD.question(BETTER, None, baseline=without(BASELINE, "sign")),
        ("sign", "evidence"),
        "the dumb baseline constant was not judged on it",
    ),
    "baseline on another golden set": (
        lambda: WORLD.question(BETTER, None, baseline=replace(BASELINE, golden_hash="c")),
        (None, "same golden set"),
        "dumb baseline",
    ),
    "metric of another kind": (
        lambda: WORLD.question(BETTER, CHAMPION, heads=[AREA, DEPTH, replace(SIGN, metric=Metric.IOU)]),
        ("sign", "evidence"),
        "can't be judged by iou",
    ),
    "kind that can't be judged": (
        lambda: WORLD.question(
            BETTER, CHAMPION, heads=[AREA, DEPTH, Head("sign", Kind.TRACK, ("car",), metric=Metric.AP50)]
        ),
        ("sign", "evidence"),
        "can't be judged",
    ),
}


@pytest.mark.parametrize("case", MISSING_EVIDENCE)
def test_what_cant_be_measured_refuses(case: str) -> None:
    question, (head, rule), text = MISSING_EVIDENCE[case]
    verdict = decide(question())
    assert not verdict.passed
    assert (head, rule) in broken(verdict)
    assert any(re.search(text, r.text) for r in verdict.reasons if not r.held)
    json.dumps(verdict.to_document(), allow_nan=False)


def test_some_subjects_without_an_answer_count_as_wrong_and_are_told() -> None:
    silent = {
        subject: {**statistic, "right": [0.0], "missing": [1.0]} if subject < "s0030" else statistic
        for subject, statistic in BETTER.statistics["sign"].items()
    }
    verdict = decide(WORLD.question(replace(BETTER, statistics={**BETTER.statistics, "sign": silent}), CHAMPION))
    assert broken(verdict) == [("sign", Rule.NON_INFERIORITY)]
    assert any("30 subjects without an answer count as wrong" in r.text for r in verdict.reasons)


def test_the_first_champion_must_beat_the_dumb_baseline_on_every_head() -> None:
    verdict = decide(WORLD.question(BETTER, None, baseline=BASELINE, targets=[], margins={}))
    assert verdict.passed
    assert {row.rule for row in verdict.rows if row.slice is None} == {Rule.FLOOR}
    no_better = WORLD.model("constant", 7, depth=0.0)
    verdict = decide(WORLD.question(CHAMPION, None, baseline=no_better, targets=[]))
    assert {("area", Rule.FLOOR), ("depth", Rule.FLOOR), ("sign", Rule.FLOOR)} >= set(broken(verdict))
    assert not verdict.passed


def test_a_new_head_is_held_against_the_dumb_baseline() -> None:
    older = replace(without(CHAMPION, "sign"), heads=frozenset({"area", "depth"}))
    verdict = decide(WORLD.question(BETTER, older, baseline=BASELINE))
    assert verdict.passed
    row = next(r for r in verdict.rows if r.head == "sign" and r.slice is None)
    assert (row.rule, row.reference_name) == (Rule.FLOOR, "dumb baseline")
    assert decide(WORLD.question(BETTER, older, baseline=BASELINE, targets=["sign"])).passed
    assert not decide(WORLD.question(BETTER, older, baseline=put(BASELINE, "sign", right=[1.0]))).passed


def test_a_baseline_that_scores_nothing_still_asks_for_more_than_nothing() -> None:
    nothing = put(BASELINE, "area", intersection=[0.0])
    useless = put(BETTER, "area", intersection=[0.0])
    assert ("area", Rule.FLOOR) in broken(decide(WORLD.question(useless, None, baseline=nothing, targets=[])))


def test_the_groups_of_each_head_count_for_themselves() -> None:
    golden = [replace(s, heads=s.heads - {"sign"}) if s.id >= "s0078" else s for s in WORLD.golden]
    assert broken(decide(WORLD.question(BETTER, CHAMPION, golden=golden))) == [("sign", "groups")]


def test_a_margin_may_not_give_away_what_the_champion_is_worth() -> None:
    """Noise so large that even the dumb baseline would count as no worse must not open the gate."""
    wide = {head.name: Margin(5.0, 1.0, 1, 2) for head in WORLD.heads}
    collapsed = WORLD.model("collapsed", 8, area=1.5, depth=-3.0, sign=-3.0)
    assert decide(WORLD.question(collapsed, CHAMPION, margins=wide)).passed
    verdict = decide(WORLD.question(collapsed, CHAMPION, margins=wide, baseline=BASELINE))
    assert broken(verdict) == [("depth", Rule.NON_INFERIORITY), ("sign", Rule.NON_INFERIORITY)]
    assert any("the measured margin 5.0000 is cut to" in r.text for r in verdict.reasons)
    rules = GateRules(resamples=400, preserved=None)
    assert decide(WORLD.question(collapsed, CHAMPION, margins=wide, baseline=BASELINE, rules=rules)).passed


def test_a_head_that_is_worth_nothing_yet_does_not_hold_the_others_back() -> None:
    """A margin cut to nothing would refuse for the fourth decimal; a real loss is refused all the same."""

    def worse_by(share: float) -> ModelEvidence:
        depth = {
            s: {**v, "relative": [v["relative"][0] * (1 + share)]} for s, v in CHAMPION.statistics["depth"].items()
        }
        return replace(BETTER, statistics={**BETTER.statistics, "depth": depth})

    as_dumb = replace(BASELINE, statistics={**BASELINE.statistics, "depth": CHAMPION.statistics["depth"]})
    error = next(r for r in decide(WORLD.question(BETTER, CHAMPION)).rows if r.head == "depth").reference
    assert decide(WORLD.question(worse_by(0.0005 / error), CHAMPION, baseline=as_dumb)).passed
    verdict = decide(WORLD.question(worse_by(0.005 / error), CHAMPION, baseline=as_dumb))
    assert broken(verdict) == [("depth", Rule.NON_INFERIORITY)]


def test_slices_are_reported_and_judged_on_demand() -> None:
    night = {s.id for s in WORLD.golden if "time_of_day=night" in s.slices}
    blind = {
        subject: {**statistic, "right": [0.0]} if subject in night else {**statistic, "right": [1.0]}
        for subject, statistic in BETTER.statistics["sign"].items()
    }
    lopsided = replace(BETTER, statistics={**BETTER.statistics, "sign": blind})
    margins = {"depth": Margin(0.1, 0.03, 2, 3), "sign": Margin(0.45, 0.03, 2, 3)}
    reported = decide(WORLD.question(lopsided, CHAMPION, margins=margins))
    assert reported.passed
    rows = {(row.head, row.slice): row for row in reported.rows}
    assert rows["sign", "time_of_day=night"].challenger == 0.0
    assert rows["sign", "time_of_day=night"].rule is Rule.REPORTED
    assert rows["sign", "time_of_day=night"].groups == 25
    rules = GateRules(resamples=400, enforce_slices=True)
    judged = decide(WORLD.question(lopsided, CHAMPION, margins=margins, rules=rules))
    assert broken(judged) == [("sign", Rule.NON_INFERIORITY)]
    assert any("in time_of_day=night" in r.text for r in judged.reasons if not r.held)
    few = GateRules(resamples=400, enforce_slices=True, slice_min_groups=26)
    assert decide(WORLD.question(lopsided, CHAMPION, margins=margins, rules=few)).passed


def test_boxes_are_judged_too() -> None:
    world = World(seed=4, heads=(OBJECTS, AREA))
    verdict = decide(world.question(world.model("b", 2, objects=1.5), world.model("a", 1)))
    assert verdict.passed
    assert verdict.rows[0].metric == "ap50"
    assert CHAMPION.golden_hash == HASH
