import random
from dataclasses import replace

import numpy as np
import pytest

from engine.acquisition.candidates import AcquisitionError, Candidate, Instant
from engine.acquisition.choose import Arm, Choice, choose
from engine.acquisition.triggers import Trigger
from engine.evidence.pool_estimate import horvitz_thompson_mean

SECOND = 1_000_000_000


def pool(count: int, seed: int = 0, per_clip: int = 10) -> list[Candidate]:
    generator = np.random.default_rng(seed)
    embeddings = generator.normal(size=(count, 16))
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    return [
        Candidate(
            subject_id=f"s{i:05}",
            drive_id=f"d{i // per_clip}",
            clip_id=f"c{i // per_clip}",
            stream="front",
            capture_ns=(i % per_clip) * SECOND // 2,
            quantiles={"lanes": float(generator.random()), "objects": float(generator.random())},
            embedding=embeddings[i].tolist(),
            tags={"weather": "fog" if i % 4 == 0 else "clear"},
        )
        for i in range(count)
    ]


def pick(candidates: list[Candidate], budget: int = 20, seed: int = 1, **changes: object) -> list[Choice]:
    settings: dict[str, object] = {"heads": ["lanes", "objects"], **changes}
    return choose(candidates, np.empty((0, 16)), budget, seed=seed, **settings)  # type: ignore[arg-type]


def test_the_same_seed_and_set_give_the_same_batch_in_any_order() -> None:
    candidates = pool(200)
    shuffled = list(candidates)
    random.Random(3).shuffle(shuffled)
    assert pick(candidates) == pick(shuffled)
    assert pick(candidates) != pick(candidates, seed=2)


def test_a_batch_has_its_control_arm_first_and_says_why() -> None:
    candidates = {c.subject_id: c for c in pool(200)}
    batch = pick(list(candidates.values()))
    assert len(batch) == 20
    assert [c.rank for c in batch] == list(range(20))
    assert [c.arm for c in batch] == [Arm.CONTROL] * 2 + [Arm.CHOSEN] * 18
    assert len({c.subject_id for c in batch}) == 20
    for choice in batch[:2]:
        assert choice.inclusion_probability == 2 / 200
        assert choice.reason == {"seed": 1, "pool_size": 200, "control_fraction": 0.1, "drawn": 2}
    for choice in batch[2:]:
        quantiles = candidates[choice.subject_id].quantiles
        assert choice.inclusion_probability is None
        assert choice.reason["quantile"] == max(quantiles.values()) == quantiles[choice.reason["head"]]


def test_the_chosen_are_uncertain_and_the_control_are_not() -> None:
    candidates = pool(400)
    place = {c.subject_id: max(c.quantiles.values()) for c in candidates}
    chosen, control = [], []
    for seed in range(40):
        for choice in pick(candidates, seed=seed):
            (chosen if choice.arm is Arm.CHOSEN else control).append(place[choice.subject_id])
    assert np.mean(chosen) > 0.85
    assert abs(np.mean(control) - np.mean(list(place.values()))) < 0.1


def test_every_subject_is_drawn_as_often_as_its_probability_says() -> None:
    candidates = pool(40)
    counts = {c.subject_id: 0 for c in candidates}
    tries = 3000
    recorded = set()
    for seed in range(tries):
        for choice in pick(candidates, budget=5, seed=seed, oversampling=1):
            if choice.arm is Arm.CONTROL:
                counts[choice.subject_id] += 1
                recorded.add(choice.inclusion_probability)
    assert recorded == {0.5 / 40}
    expected = tries * 0.5 / 40
    statistic = sum((n - expected) ** 2 / expected for n in counts.values())
    assert statistic < 73  # chi-squared with 39 degrees of freedom, p = 0.001
    assert abs(sum(counts.values()) - tries * 0.5) < 4 * (tries * 0.25) ** 0.5


def test_the_pools_mean_is_estimated_without_bias_from_the_control_arm() -> None:
    candidates = pool(60)
    error = {c.subject_id: max(c.quantiles.values()) ** 2 for c in candidates}  # a model errs where it is unsure
    truth = float(np.mean(list(error.values())))
    estimates, naive = [], []
    for seed in range(2000):
        batch = pick(candidates, budget=15, seed=seed, oversampling=1)
        control = [c for c in batch if c.arm is Arm.CONTROL]
        estimates.append(
            horvitz_thompson_mean(
                [error[c.subject_id] for c in control], [c.inclusion_probability for c in control], len(candidates)
            )
        )
        naive.append(np.mean([error[c.subject_id] for c in batch]))
    standard_error = np.std(estimates) / len(estimates) ** 0.5
    assert abs(np.mean(estimates) - truth) < 3.3 * standard_error
    assert np.mean(naive) - truth > 0.1  # what the whole batch would have said


def test_one_of_near_copies_is_enough() -> None:
    candidates = pool(100, per_clip=50)
    batch = [c for c in pick(candidates, budget=60, window_ns=2 * SECOND) if c.arm is Arm.CHOSEN]
    by_id = {c.subject_id: c for c in candidates}
    frames = [by_id[c.subject_id] for c in batch]
    for index, frame in enumerate(frames):
        for other in frames[:index]:
            assert other.clip_id != frame.clip_id or abs(other.capture_ns - frame.capture_ns) >= 2 * SECOND
    assert len(batch) < 30  # the rest of the budget is not spent on copies


def test_neighbours_of_what_is_queued_are_left_out() -> None:
    candidates = pool(10)
    everywhere = [Instant("d0", "front", i * SECOND // 2) for i in range(10)]
    assert pick(candidates, control_fraction=0.0, occupied=everywhere) == []


def test_triggers_narrow_the_chosen_arm_and_leave_the_control_arm() -> None:
    candidates = pool(400)
    foggy = {c.subject_id for c in candidates if c.tags["weather"] == "fog"}
    fog = Trigger("tag", {"key": "weather", "value": "fog"})
    never = Trigger("tag", {"key": "weather", "value": "snow"})
    controls = set()
    for seed in range(20):
        for choice in pick(candidates, seed=seed, triggers=[fog, never]):
            if choice.arm is Arm.CHOSEN:
                assert choice.subject_id in foggy
                assert choice.reason["triggers"] == [{**fog.to_document(), "hash": fog.hash}]
            else:
                controls.add(choice.subject_id)
    assert controls - foggy


def test_picks_keep_away_from_what_is_labelled() -> None:
    first, second = np.eye(16)[0], np.eye(16)[1]
    base = pool(2, per_clip=1)
    candidates = [
        replace(base[0], embedding=first.tolist(), quantiles={"lanes": 1.0}),
        replace(base[1], embedding=second.tolist(), quantiles={"lanes": 0.9}),
    ]
    (choice,) = choose(candidates, [first], 1, seed=0, heads=["lanes"], control_fraction=0.0)
    assert choice.subject_id == base[1].subject_id
    assert choice.reason["distance"] == pytest.approx(2**0.5)


def test_a_subject_without_a_wanted_head_is_for_control_alone() -> None:
    batch = pick(pool(30), heads=["depth"], budget=30)
    assert {c.arm for c in batch} == {Arm.CONTROL}
    assert len(batch) == 3


def test_a_pool_smaller_than_the_budget_is_taken_whole() -> None:
    assert len(pick(pool(7, per_clip=1), budget=50)) == 7
    assert pick([], budget=5) == []
    assert pick(pool(5), budget=0) == []


def test_bad_input_is_refused() -> None:
    candidates = pool(3)
    broken = replace(candidates[0], quantiles={"lanes": float("nan")})
    for wrong, message in (
        ([broken], "not in \\[0, 1\\]"),
        ([candidates[0], candidates[0]], "in the pool twice"),
        ([replace(candidates[0], embedding=[2.0] * 16)], "unit length"),
    ):
        with pytest.raises(AcquisitionError, match=message):
            pick(wrong, control_fraction=0.0)
    with pytest.raises(AcquisitionError, match="at least one head"):
        pick(candidates, heads=[])
    with pytest.raises(AcquisitionError, match="control_fraction"):
        pick(candidates, control_fraction=2.0)


def test_neighbours_of_the_control_arm_are_left_out() -> None:
    candidates = pool(40, per_clip=20)
    by_id = {c.subject_id: c for c in candidates}
    for seed in range(30):
        batch = pick(candidates, budget=20, seed=seed, window_ns=2 * SECOND)
        control = [by_id[c.subject_id] for c in batch if c.arm is Arm.CONTROL]
        for chosen in (by_id[c.subject_id] for c in batch if c.arm is Arm.CHOSEN):
            for drawn in control:
                apart = abs(chosen.capture_ns - drawn.capture_ns)
                assert chosen.clip_id != drawn.clip_id or apart >= 2 * SECOND


def test_among_equals_the_one_that_is_unsure_for_more_heads_comes_first() -> None:
    narrow, broad = (
        replace(candidate, quantiles={"lanes": 1.0, "objects": other})
        for candidate, other in zip(pool(2, per_clip=1), (0.2, 0.9), strict=True)
    )
    (choice,) = pick([narrow, broad], budget=1, control_fraction=0.0, oversampling=1)
    assert choice.subject_id == broad.subject_id
