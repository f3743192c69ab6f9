"""Cron expressions: the next time, also where clocks are moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.domain.refusals import Invalid
from engine.jobs.cron import explained, next_time

BERLIN = "Europe/Berlin"  # its clocks go forward on 2027-03-28 at 01:00 UTC, and back on 2026-10-25 at 01:00 UTC


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def times(expression: str, after: str, count: int, zone: str = BERLIN) -> list[str]:
    """The next times as a ticker finds them: each search begins some seconds after the time before."""
    found: list[datetime] = []
    since = at(after)
    for _ in range(count):
        found.append(next_time(expression, zone, since))
        since = found[-1] + timedelta(seconds=7)
    return [moment.strftime("%m-%d %H:%M") for moment in found]


def test_a_time_of_day_is_the_zones_own_in_summer_and_winter() -> None:
    assert times("30 3 * * *", "2026-10-23 12:00", 3) == ["10-24 01:30", "10-25 02:30", "10-26 02:30"]
    assert times("30 3 * * MON", "2026-10-23 12:00", 2) == ["10-26 02:30", "11-02 02:30"]
    assert times("0 0 1 * *", "2026-10-23 12:00", 1, zone="Pacific/Auckland") == ["10-31 11:00"]


def test_a_time_that_the_clocks_leave_out_comes_right_after_they_moved() -> None:
    assert times("30 2 * * *", "2027-03-27 12:00", 3) == ["03-28 01:00", "03-29 00:30", "03-30 00:30"]


def test_a_time_that_comes_twice_is_taken_once() -> None:
    assert times("30 2 * * *", "2026-10-24 12:00", 3) == ["10-25 00:30", "10-26 01:30", "10-27 01:30"]


@pytest.mark.parametrize("after", ["2026-10-25 00:30:00", "2026-10-25 00:59", "2026-10-25 01:10", "2026-10-25 01:40"])
def test_within_the_hour_that_comes_twice_nothing_that_is_over_comes_again(after: str) -> None:
    assert times("30 2 * * *", after, 1) == ["10-26 01:30"]


def test_what_recurs_within_the_hour_goes_on_by_elapsed_time() -> None:
    assert times("0 * * * *", "2026-10-24 23:30", 4) == ["10-25 00:00", "10-25 01:00", "10-25 02:00", "10-25 03:00"]
    assert times("*/30 * * * *", "2027-03-28 00:20", 3) == ["03-28 00:30", "03-28 01:00", "03-28 01:30"]


@given(
    after=st.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC)),
    expression=st.sampled_from(["30 2 * * *", "0 1-4 * * *", "15 */2 * * *", "*/20 * * * *", "0 3 * * SUN"]),
    zone=st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC", "Asia/Kathmandu"]),
)
@settings(max_examples=200, deadline=None)
def test_the_next_time_is_later_and_nothing_lies_between(after: datetime, expression: str, zone: str) -> None:
    found = next_time(expression, zone, after)
    assert found > after
    middle = after + (found - after) / 2
    assert next_time(expression, zone, middle) == found, "from anywhere before it, it is the next"


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("61 * * * *", "bad minute"),
        ("@daily", "it has 1 fields"),
        ("0 0 * * * *", "it has 6 fields"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("*/0 * * * *", "bad minute"),
        ("", "it has 0 fields"),
        ("a b c d e", "bad minute"),
    ],
)
def test_what_is_no_expression_is_refused_and_says_what_to_give(expression: str, told: str) -> None:
    with pytest.raises(Invalid, match=told) as refused:
        next_time(expression, "UTC", at("2026-10-25"))
    assert refused.value.code == "invalid-cron"
    assert "30 3 * * MON" in refused.value.hint


@pytest.mark.parametrize("zone", ["Europe/Entenhausen", "../../etc/passwd", "/etc/passwd", "Europe", "", "a\x00b"])
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(Invalid, match="there is no time zone"):
        next_time("0 0 * * *", zone, at("2026-10-25"))


def test_an_expression_is_told_in_words() -> None:
    assert explained("30 3 * * MON") == "At 03:30 on Monday"
    assert explained("nonsense") == "nonsense"
