import math
import time
from statistics import NormalDist

import numpy as np
import pytest

from engine.domain.ontology import Head, Kind, LabelTool
from engine.evidence.paired_bootstrap import expanded_percentiles, multiplicities, paired_difference
from engine.evidence.statistic import Statistic, metric

DEPTH = Head("depth", Kind.DENSE_SCALAR, label_tool=LabelTool.MACHINE, unit="m")
SIGN = Head("sign", Kind.CHOICE, ("stop", "yield"))
OBJECTS = Head("objects", Kind.BOXES, ("car", "cyclist", "person"))


def depth(errors: np.ndarray) -> list[Statistic]:
    return [{"relative": [float(e)], "count": [1.0], "missing": [0.0]} for e in errors]


def boxes(generator: np.random.Generator, subjects: int, quality: float) -> list[Statistic]:
    found = []
    for _ in range(subjects):
        truth = generator.integers(0, 4, size=3)
        scores, hits, labels = [], [], []
        for index, count in enumerate(truth):
            for _ in range(int(count)):
                hit = generator.random() < quality
                scores.append(float(np.clip(generator.normal(0.7 if hit else 0.4, 0.2), 0, 1)))
                hits.append(float(hit))
                labels.append(float(index))
        found.append(
            {"class": labels, "score": scores, "tp": hits, "n_truth": truth.astype(float).tolist(), "missing": [0.0]}
        )
    return found


def test_a_group_is_drawn_whole_and_as_many_as_there_are() -> None:
    groups = ["a", "b", "a", "c", "b", "a"]
    drawn = multiplicities(groups, 500, seed=0)
    assert (drawn[:, 0] == drawn[:, 2]).all()
    assert (drawn[:, 0] == drawn[:, 5]).all()
    assert (drawn[:, [0, 1, 3]].sum(axis=1) == 3).all()
    assert drawn[:, 3].mean() == pytest.approx(1.0, abs=0.15)


def test_it_equals_a_plain_loop_that_copies_subjects() -> None:
    generator = np.random.default_rng(0)
    first, second = boxes(generator, 12, 0.8), boxes(generator, 12, 0.6)
    groups = [f"d{i // 2}" for i in range(12)]
    found = paired_difference(OBJECTS, first, second, groups, seed=5, alpha=0.1, resamples=60)
    differences = []
    for row in multiplicities(groups, 60, seed=5):
        copies = [index for index, times in enumerate(row) for _ in range(int(times))]
        differences.append(metric(OBJECTS, [first[i] for i in copies]) - metric(OBJECTS, [second[i] for i in copies]))
    assert (found.low, found.high) == pytest.approx(expanded_percentiles(np.array(differences), 6, 0.1), abs=1e-12)
    assert found.difference == pytest.approx(metric(OBJECTS, first) - metric(OBJECTS, second))


def test_lower_errors_are_better_and_the_order_of_subjects_is_nothing() -> None:
    generator = np.random.default_rng(1)
    worse = generator.uniform(0.2, 0.4, size=50)
    first, second, groups = depth(worse - 0.1), depth(worse), [f"d{i}" for i in range(50)]
    found = paired_difference(DEPTH, first, second, groups, seed=0)
    assert found.difference == pytest.approx(0.1)
    assert 0.099 < found.low <= found.high < 0.101  # paired: what is hard for both cancels
    turned = paired_difference(DEPTH, second, first, groups, seed=0)
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low))
    order = generator.permutation(50)
    again = paired_difference(
        DEPTH, [first[i] for i in order], [second[i] for i in order], [groups[i] for i in order], seed=0
    )
    assert (again.low, again.high) == pytest.approx((found.low, found.high))


def test_each_bound_is_missed_about_as_often_as_it_says_though_drives_are_alike_inside() -> None:
    missed_low = missed_high = naive = 0
    trials = 200
    for trial in range(trials):
        generator = np.random.default_rng(trial)
        groups = [f"d{i // 4}" for i in range(160)]
        drive = np.repeat(generator.exponential(0.05, size=40) - 0.05, 4)  # skewed, shared in a drive, true mean 0
        better = drive + generator.normal(0, 0.02, size=160)
        hard = np.full(160, 1.0)
        found = paired_difference(DEPTH, depth(hard - better), depth(hard), groups, seed=trial, resamples=400)
        missed_low += found.low > 0
        missed_high += found.high < 0
        if trial >= 40:
            continue
        alone = paired_difference(DEPTH, depth(hard - better), depth(hard), list(range(160)), seed=trial, resamples=400)
        naive += alone.low > 0 or alone.high < 0
    assert missed_low / trials <= 0.095
    assert missed_high / trials <= 0.12  # the long tail's side
    assert (missed_low + missed_high) / trials < 0.15
    assert naive / 40 > 0.3  # frames taken for independent would be sure of nothing


def test_the_interval_is_wider_than_the_plain_one_by_what_few_groups_ask_for() -> None:
    replicates = NormalDist(0, 1)
    grid = np.array([replicates.inv_cdf((i + 0.5) / 20000) for i in range(20000)])
    low, high = expanded_percentiles(grid, 10, 0.05)
    assert high == pytest.approx(1.833 * math.sqrt(10 / 9), abs=0.01)
    assert low == pytest.approx(-high, abs=1e-6)


def test_a_resample_that_cant_be_measured_widens_both_sides() -> None:
    replicates = np.concatenate([np.linspace(0.1, 0.2, 90), np.full(10, np.nan)])
    assert expanded_percentiles(replicates, 50, 0.05) == (-np.inf, np.inf)


def test_five_heads_with_boxes_take_less_than_five_seconds() -> None:
    generator = np.random.default_rng(3)
    groups = [f"d{i // 2}" for i in range(120)]
    started = time.process_time()
    for _ in range(2):
        paired_difference(OBJECTS, boxes(generator, 120, 0.7), boxes(generator, 120, 0.6), groups, seed=0)
    for _ in range(3):
        paired_difference(DEPTH, depth(generator.random(120)), depth(generator.random(120)), groups, seed=0)
    assert time.process_time() - started < 5


def test_what_is_not_of_the_same_subjects_is_refused() -> None:
    with pytest.raises(ValueError, match="same subjects"):
        paired_difference(DEPTH, depth(np.ones(2)), depth(np.ones(3)), ["a", "b"], seed=0)
    with pytest.raises(ValueError, match="no spread"):
        paired_difference(DEPTH, depth(np.ones(2)), depth(np.ones(2)), ["a", "a"], seed=0)
    with pytest.raises(ValueError, match="alpha"):
        expanded_percentiles(np.zeros(10), 5, 0.0)
