from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.domain.sampling import sample


def milli(pts: list[int], every_s: float, most: int) -> list[int]:
    return sample(pts, 1, 1000, every_s=every_s, most=most)


def test_one_frame_for_every_interval_from_the_first_on() -> None:
    assert milli(list(range(100, 3100, 100)), 0.5, 100) == [100, 600, 1100, 1600, 2100, 2600]


def test_frames_closer_than_the_interval_are_passed_over() -> None:
    assert milli([0, 33, 67, 100, 133, 900], 0.1, 100) == [0, 100, 900]


def test_too_many_are_spread_to_the_end_instead_of_cut_off() -> None:
    assert milli(list(range(1001)), 0.01, 5) == [0, 250, 500, 750, 1000]
    assert milli(list(range(1001)), 0.01, 1) == [0]


def test_no_frames_give_none_and_a_rate_above_the_streams_gives_all() -> None:
    assert milli([], 1.0, 10) == []
    assert milli([0, 40, 80], 0.001, 10) == [0, 40, 80]


@pytest.mark.parametrize(("every_s", "most"), [(-1.0, 5), (1.0, 0)])
def test_senseless_settings_are_refused(every_s: float, most: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        milli([0], every_s, most)


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=60, unique=True).map(sorted),
    st.floats(0.001, 100),
    st.integers(1, 40),
)
def test_samples_ascend_begin_at_the_first_frame_and_stay_within_the_limit(
    pts: list[int], every_s: float, most: int
) -> None:
    chosen = milli(pts, every_s, most)
    assert chosen[0] == pts[0]
    assert chosen == sorted(set(chosen))
    assert set(chosen) <= set(pts)
    assert len(chosen) <= most
