"""How often the gate errs, by simulation: on equal models, and on models that are better or worse by a known amount."""

from dataclasses import replace

import pytest

from engine.domain.ontology import Head
from engine.evidence.gate import decide
from engine.evidence.gate_input import GateRules
from engine.evidence.noise import Margin
from tests.engine.evidence.simulated_models import AREA, DEPTH, OBJECTS, SIGN, World

WIDE = {head.name: Margin(0.5, 0.1, 2, 3) for head in (AREA, DEPTH, OBJECTS, SIGN)}


def promoted(trials: int, heads: tuple[Head, ...], margins: dict[str, Margin], **skill: float) -> float:
    """The share of `trials` worlds in which a challenger of that skill is promoted; its target is the first head."""
    passed = 0
    for seed in range(trials):
        world = World(seed, groups=40, heads=heads)
        question = world.question(
            world.model("challenger", 2, **skill),
            world.model("champion", 1),
            margins=margins,
            golden=[replace(subject, slices=frozenset()) for subject in world.golden],
            rules=GateRules(resamples=300),
        )
        passed += decide(question).passed
    return passed / trials


@pytest.mark.parametrize(
    ("heads", "trials"),
    [((AREA,), 500), ((DEPTH,), 300), ((SIGN,), 300), ((OBJECTS,), 150)],
    ids=["iou", "abs_rel", "accuracy", "ap50"],
)
def test_an_equal_model_is_promoted_in_no_more_than_one_case_of_twenty(heads: tuple[Head, ...], trials: int) -> None:
    # Three standard errors above 5%: 7.9% of 500, 10.3% of 150.
    assert promoted(trials, heads, WIDE) <= 0.05 + 3 * (0.05 * 0.95 / trials) ** 0.5


def test_more_heads_that_must_hold_never_promote_more_equals() -> None:
    assert promoted(120, (AREA, DEPTH, SIGN), WIDE) <= 0.05 + 3 * (0.05 * 0.95 / 120) ** 0.5


def test_a_model_that_is_truly_better_is_promoted() -> None:
    assert promoted(40, (AREA, DEPTH, SIGN), WIDE, area=0.4) >= 0.95


def test_a_model_that_is_truly_worse_is_refused() -> None:
    assert promoted(80, (AREA, DEPTH, SIGN), WIDE, area=-0.2) == 0.0


def test_a_model_that_gave_one_head_for_another_is_refused() -> None:
    margins = {"depth": Margin(0.03, 0.01, 2, 3), "sign": WIDE["sign"]}
    assert promoted(40, (AREA, DEPTH, SIGN), margins, area=0.6) >= 0.95
    # A loss of twice the margin on one head is let through in no more than alpha of the cases.
    assert promoted(80, (AREA, DEPTH, SIGN), margins, area=0.6, depth=-1.0) <= 0.05
