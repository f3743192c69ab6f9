"""A model that does not answer every head of its line: judged on what it answers, and let in by name alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.evidence.gate import decide
from engine.evidence.gate_input import ModelEvidence, Waiver, WaiverName
from tests.engine.evidence.simulated_models import World

WORLD = World(seed=1)
CHAMPION = WORLD.model("champion", 1)
BETTER = WORLD.model("challenger", 2, area=0.8, depth=0.3, sign=1.0)
BASELINE = WORLD.model("constant", 3, area=-3.0, depth=-3.0, sign=-3.0)
NO_SIGN = Waiver(WaiverName.RETIRED_HEAD, by="anna", why="their detector knows no signs", head="sign")


def silent(model: ModelEvidence, head: str) -> ModelEvidence:
    """The model without this head."""
    statistics = {name: known for name, known in model.statistics.items() if name != head}
    return replace(model, statistics=statistics, heads=model.heads - {head})


@pytest.mark.parametrize("champion", [CHAMPION, silent(CHAMPION, "sign"), None])
def test_it_is_refused_until_somebody_answers_for_the_head(champion: ModelEvidence | None) -> None:
    challenger = silent(BETTER, "sign")
    asked = {"baseline": BASELINE} if champion else {"baseline": BASELINE, "targets": []}
    refused = decide(WORLD.question(challenger, champion, **asked))
    assert {reason.head for reason in refused.reasons if not reason.held} == {"sign"}
    waived = decide(WORLD.question(challenger, champion, waivers=[NO_SIGN], **asked))
    assert waived.passed, waived.reasons
    assert {row.head for row in waived.rows} == {"area", "depth"}
    (said,) = (reason for reason in waived.reasons if reason.head == "sign")
    assert (said.held, said.rule) == (True, "vanished head")
    assert "waived by anna: their detector knows no signs" in said.text


def test_the_waiver_of_one_head_lets_no_other_vanish() -> None:
    for other in (replace(NO_SIGN, head="depth"), replace(NO_SIGN, head=None)):
        assert not decide(WORLD.question(silent(BETTER, "sign"), CHAMPION, waivers=[other])).passed


def test_a_head_that_is_answered_is_judged_waiver_or_not() -> None:
    worse = WORLD.model("worse", 4, area=0.8, depth=0.3, sign=-2.0)
    verdict = decide(WORLD.question(worse, CHAMPION, waivers=[NO_SIGN]))
    assert not verdict.passed
    assert [reason.head for reason in verdict.reasons if not reason.held] == ["sign"]


def test_a_target_can_not_be_waived_away() -> None:
    waiver = replace(NO_SIGN, head="area")
    verdict = decide(WORLD.question(silent(BETTER, "area"), CHAMPION, targets=["area"], waivers=[waiver]))
    assert not verdict.passed


def test_a_model_that_answers_nothing_is_refused_whatever_is_waived() -> None:
    nothing = replace(BETTER, statistics={}, heads=frozenset())
    waivers = [replace(NO_SIGN, head=head) for head in ("area", "depth", "sign")]
    assert not decide(WORLD.question(nothing, None, baseline=BASELINE, targets=[], waivers=waivers)).passed
