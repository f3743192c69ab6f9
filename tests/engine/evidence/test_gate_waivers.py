"""What a person may waive, on record, and what that lets through."""

from dataclasses import replace
from typing import Any

import pytest

from engine.evidence.gate import Rule, decide
from engine.evidence.gate_input import GateInput, GateRules, Waiver, WaiverName
from engine.evidence.noise import Margin
from tests.engine.evidence.simulated_models import AREA, DEPTH, World, broken, put, without

WORLD = World(seed=1)
CHAMPION = WORLD.model("champion", 1)
BETTER = WORLD.model("challenger", 2, area=0.8, depth=0.3, sign=1.0)
BASELINE = WORLD.model("constant", 3, area=-3.0, depth=-3.0, sign=-3.0)
ONE_DRIVE = Waiver(WaiverName.WITHIN_ONE_DRIVE, by="anna", why="the first week has two drives")


def test_a_waiver_that_nobody_answers_for_is_none() -> None:
    for by, why in (("", "reason"), ("anna", " ")):
        with pytest.raises(ValueError, match="say who waives it and why"):
            Waiver(WaiverName.WITHIN_ONE_DRIVE, by=by, why=why)


def test_a_retired_head_needs_its_own_waiver() -> None:
    retired = Waiver(WaiverName.RETIRED_HEAD, by="anna", why="no such signs here", head="sign")
    verdict = decide(WORLD.question(BETTER, CHAMPION, heads=[AREA, DEPTH], waivers=[retired]))
    assert verdict.passed
    assert any("waived by anna: no such signs here" in r.text for r in verdict.reasons)
    for other in (replace(retired, head="depth"), replace(retired, head=None), ONE_DRIVE):
        assert not decide(WORLD.question(BETTER, CHAMPION, heads=[AREA, DEPTH], waivers=[other])).passed


def test_a_head_that_is_still_to_be_learnt_is_waived_by_name_and_only_where_no_champion_has_it() -> None:
    waiver = Waiver(WaiverName.UNLEARNT_HEAD, by="anna", why="the seed has none in daylight", head="sign")
    useless = put(BASELINE, "sign", right=[1.0])
    first = decide(WORLD.question(BETTER, None, baseline=useless, targets=[], waivers=[waiver]))
    assert first.passed
    (row,) = (row for row in first.rows if row.head == "sign" and row.slice is None)
    assert not row.passed, "the figures stay what they are"
    assert any("waived by anna: the seed has none in daylight" in r.text for r in first.reasons)
    for other in (replace(waiver, head="area"), replace(waiver, head=None), ONE_DRIVE):
        assert not decide(WORLD.question(BETTER, None, baseline=useless, targets=[], waivers=[other])).passed
    unseen = without(BETTER, "sign")
    assert not decide(WORLD.question(unseen, None, baseline=BASELINE, targets=[], waivers=[waiver])).passed


def test_a_declared_target_must_pass_whatever_is_waived() -> None:
    waiver = Waiver(WaiverName.UNLEARNT_HEAD, by="anna", why="it is new", head="sign")
    older = replace(without(CHAMPION, "sign"), heads=frozenset({"area", "depth"}))
    useless = put(BASELINE, "sign", right=[1.0])
    new = decide(WORLD.question(BETTER, older, baseline=useless, targets=["sign"], waivers=[waiver]))
    assert broken(new) == [("sign", Rule.FLOOR)]
    assert decide(WORLD.question(BETTER, older, baseline=useless, targets=["area"], waivers=[waiver])).passed


def test_waivers_alone_promote_nobody() -> None:
    waivers = [Waiver(WaiverName.UNLEARNT_HEAD, by="anna", why="all new", head=head.name) for head in WORLD.heads]
    verdict = decide(WORLD.question(BASELINE, None, baseline=BETTER, targets=[], waivers=waivers))
    assert broken(verdict) == [(None, "evidence")]
    assert decide(WORLD.question(BETTER, None, baseline=BASELINE, targets=[], waivers=waivers)).passed


WIDE = {head.name: Margin(0.2, 0.05, 2, 3) for head in WORLD.heads}


def test_what_a_champion_has_by_luck_holds_nobody_back_under_the_waiver_and_what_it_has_learnt_does() -> None:
    waiver = Waiver(WaiverName.UNLEARNT_HEAD, by="anna", why="the seed has none in daylight", head="sign")
    worse = put(BETTER, "sign", right=[0.0])
    one_hit = dict(list(CHAMPION.statistics["sign"].items())[:1])
    none = put(CHAMPION, "sign", right=[0.0])
    lucky = replace(none, statistics={**none.statistics, "sign": {**none.statistics["sign"], **one_hit}})
    asked: dict[str, Any] = {
        "baseline": put(BASELINE, "sign", right=[0.0]),
        "margins": {**WIDE, "sign": Margin(1e-6, 1e-6, 2, 3)},
        "rules": GateRules(resamples=200, learnt=0.02),  # one hit of a hundred is no learning
    }
    assert ("sign", Rule.NON_INFERIORITY) in broken(decide(WORLD.question(worse, lucky, **asked)))
    verdict = decide(WORLD.question(worse, lucky, waivers=[waiver], **asked))
    assert broken(verdict) == []
    assert any("waived by anna" in r.text for r in verdict.reasons)
    learnt = decide(WORLD.question(worse, CHAMPION, waivers=[waiver], **asked))
    assert broken(learnt) == [("sign", Rule.NON_INFERIORITY)]
    assert any("the champion has learnt it" in r.text for r in learnt.reasons)
    unknown = {**asked, "baseline": None}
    assert ("sign", Rule.NON_INFERIORITY) in broken(decide(WORLD.question(worse, lucky, waivers=[waiver], **unknown)))


class TestFewDrives:
    world = World(seed=2, groups=10, per_group=8)
    better = world.model("challenger", 2, area=1.0, depth=1.0, sign=1.5)
    champion = world.model("champion", 1)

    def question(self, **changes: Any) -> GateInput:
        margins = {head.name: Margin(0.2, 0.05, 2, 3) for head in self.world.heads}
        return self.world.question(self.better, self.champion, **{"margins": margins, **changes})

    def test_are_too_few(self) -> None:
        verdict = decide(self.question())
        assert broken(verdict) == [("area", "groups"), ("depth", "groups"), ("sign", "groups")]
        assert "come from 10 split groups, 40 are needed" in verdict.reasons[0].text
        assert verdict.rows == []

    def test_pass_under_the_named_waiver_and_the_verdict_says_so(self) -> None:
        verdict = decide(self.question(waivers=[ONE_DRIVE]))
        assert verdict.passed
        assert verdict.scope == "within one drive"
        assert {row.resampled for row in verdict.rows} == {"clip"}
        assert all(row.groups == 20 for row in verdict.rows if row.slice is None)
        assert any("waived by anna: the first week has two drives" in r.text for r in verdict.reasons)

    def test_are_waived_for_the_named_head_only(self) -> None:
        verdict = decide(self.question(waivers=[replace(ONE_DRIVE, head="area")]))
        assert broken(verdict) == [("depth", "groups"), ("sign", "groups")]

    def test_need_a_few_clips_even_so(self) -> None:
        verdict = decide(self.question(waivers=[ONE_DRIVE], rules=GateRules(resamples=100, min_clips=21)))
        assert broken(verdict) == [("area", "groups"), ("depth", "groups"), ("sign", "groups")]
        assert "there are 20" in verdict.reasons[0].text
