import numpy as np
import pytest

from engine.evidence.noise import NoiseError, margin


def test_the_margin_is_students_bound_of_a_difference_of_two_runs() -> None:
    found = margin([[0.70, 0.72, 0.74]])
    assert found.standard_deviation == pytest.approx(0.02)
    assert (found.degrees_of_freedom, found.runs) == (2, 3)
    assert found.value == pytest.approx(2.919986 * 2**0.5 * 0.02, rel=1e-5)


def test_settings_are_pooled_whatever_their_level() -> None:
    near = margin([[0.1, 0.12], [0.8, 0.82]])
    assert near.standard_deviation == pytest.approx(0.02 / 2**0.5)
    assert near.degrees_of_freedom == 2
    assert near.value < margin([[0.1, 0.12]]).value  # more runs know more


def test_equal_runs_leave_the_floor() -> None:
    assert margin([[0.5, 0.5]], floor=0.01).value == 0.01


def test_two_equal_models_differ_by_less_than_the_margin_as_often_as_promised() -> None:
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(2000):
        found = margin([list(generator.normal(0.6, 0.02, size=3))])
        inside += generator.normal(0.6, 0.02) - generator.normal(0.6, 0.02) >= -found.value
    assert 0.935 < inside / 2000 < 0.965


@pytest.mark.parametrize("repeats", [[], [[0.5]], [[0.5], [0.6]], [[0.5, float("nan")]], [[0.5, 0.6], [float("inf")]]])
def test_unmeasured_noise_is_refused(repeats: list[list[float]]) -> None:
    with pytest.raises(NoiseError):
        margin(repeats)


def test_a_floor_must_be_above_zero() -> None:
    with pytest.raises(ValueError, match="above 0"):
        margin([[0.5, 0.6]], floor=0.0)
