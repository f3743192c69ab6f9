import numpy as np
import pytest

from engine.domain.answers import Answer
from engine.domain.ontology import Head, Kind
from engine.evidence.pool_estimate import hajek_mean, horvitz_thompson_mean, pool_metric
from engine.evidence.statistic import statistic

SIGN = Head("sign", Kind.CHOICE, ("stop", "yield"))
STOP, YIELD = (Answer(Kind.CHOICE, {"choice": c}) for c in SIGN.classes)


def test_unequal_probabilities_are_undone() -> None:
    values, probabilities = [1.0, 0.0, 0.0], [0.1, 0.5, 0.5]
    assert horvitz_thompson_mean(values, probabilities, 20) == pytest.approx(10 / 20)
    assert hajek_mean(values, probabilities) == pytest.approx(10 / 14)
    assert horvitz_thompson_mean([], [], 20) == 0.0
    assert np.isnan(hajek_mean([], []))


def test_two_batches_of_unequal_rate_give_the_pools_accuracy_back() -> None:
    """An easy pool that was sampled thinly and a hard one that was sampled densely: the plain mean would mislead."""
    generator = np.random.default_rng(0)
    right = np.concatenate([generator.random(4000) < 0.9, generator.random(1000) < 0.4])
    probability = np.concatenate([np.full(4000, 0.05), np.full(1000, 0.4)])
    inside = 0
    for trial in range(60):
        drawn = np.flatnonzero(np.random.default_rng(1000 + trial).random(5000) < probability)
        statistics = [statistic(SIGN, STOP if right[i] else YIELD, STOP) for i in drawn]
        found = pool_metric(SIGN, statistics, probability[drawn], [str(i) for i in drawn], seed=trial, resamples=400)
        inside += found.low <= right.mean() <= found.high
        assert abs(right[drawn].mean() - right.mean()) > 0.1
        assert abs(found.value - right.mean()) < 0.1
    assert inside >= 47  # 90% of 60 is 54; fewer than 47 has a chance of 1%


@pytest.mark.parametrize("probability", [0.0, 1.5, float("nan"), None])
def test_a_subject_without_a_probability_is_refused(probability: float | None) -> None:
    with pytest.raises(ValueError, match="inclusion probability"):
        horvitz_thompson_mean([1.0], [probability], 10)


def test_what_cant_be_estimated_is_refused() -> None:
    one = statistic(SIGN, STOP, STOP)
    with pytest.raises(ValueError, match="no mean"):
        horvitz_thompson_mean([1.0], [0.5], 0)
    with pytest.raises(ValueError, match="no spread"):
        pool_metric(SIGN, [one], [0.5], ["d1"], seed=0)
    with pytest.raises(ValueError, match="2 groups"):
        pool_metric(SIGN, [one], [0.5], ["d1", "d2"], seed=0)
