import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.acquisition.quantiles import reference_knots, score_quantile, score_quantiles

scores = st.lists(st.floats(0, 1e6), min_size=1, max_size=60)


def test_a_score_gets_its_place_among_the_reference() -> None:
    reference = np.random.default_rng(0).exponential(size=5000)
    knots = reference_knots(reference)
    fresh = np.random.default_rng(1).exponential(size=2000)
    exact = (reference[None, :] < fresh[:, None]).mean(axis=1)
    assert np.abs(score_quantiles(fresh, knots) - exact).max() < 0.006


def test_outside_the_reference_is_the_end_of_the_scale() -> None:
    knots = reference_knots([1.0, 2.0, 3.0])
    assert score_quantile(0.5, knots) == 0.0
    assert score_quantile(1.0, knots) == 0.0
    assert score_quantile(2.0, knots) == pytest.approx(0.5)
    assert score_quantile(3.0, knots) == 1.0
    assert score_quantile(float("inf"), knots) == 1.0


def test_a_tie_gets_the_middle_of_its_plateau() -> None:
    knots = reference_knots([0.0] * 80 + list(np.linspace(1, 2, 20)))
    assert score_quantile(0.0, knots) == pytest.approx(0.4, abs=0.01)


def test_on_a_constant_reference_only_the_side_is_known() -> None:
    knots = reference_knots([7.0, 7.0])
    assert [score_quantile(s, knots) for s in (6.9, 7.0, 7.1)] == [0.0, 0.5, 1.0]


@given(scores, st.lists(st.floats(0, 1e6), min_size=2, max_size=40))
def test_a_higher_score_never_has_a_lower_place(reference: list[float], raw: list[float]) -> None:
    places = score_quantiles(sorted(raw), reference_knots(reference))
    assert (np.diff(places) >= 0).all()
    assert places.min() >= 0
    assert places.max() <= 1


def test_a_broken_score_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        score_quantile(float("nan"), reference_knots([1.0, 2.0]))
    with pytest.raises(ValueError, match="1 of 2 reference scores"):
        reference_knots([1.0, float("nan")])
    with pytest.raises(ValueError, match="at least one"):
        reference_knots([])
    with pytest.raises(ValueError, match="too coarse"):
        reference_knots([1.0], count=100)
    with pytest.raises(ValueError, match="ascending"):
        score_quantile(1.0, [2.0, 1.0])
