"""Geometry of the charts drawn on the server, and how times and numbers are written."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from engine.queries.loop_history import HeadHistory, Turn
from services.dashboard.charts import forests, history_chart, scale_over
from services.dashboard.rendering import ago, coded, count, data_block, signed

AT = datetime(2026, 5, 1, tzinfo=UTC)


def row(**changes):
    return {
        "head": "lanes",
        "slice": None,
        "rule": "superiority",
        "metric": "line_f1",
        "difference": 0.1,
        "low": 0.05,
        "high": 0.15,
        "bound": 0.0,
        "passed": True,
        **changes,
    }


def turn(number, value, reference, promoted=False, name="champion"):
    return Turn(
        uuid.uuid4(), number, AT, "passed" if promoted else "refused", promoted, value, reference, name, 0.1, 0.9
    )


def test_ticks_are_round_and_inside():
    scale = scale_over([0.313, 0.571], 0, 100)
    assert scale.ticks(3) == [0.3, 0.4, 0.5]
    assert all(0 <= scale(tick) <= 100 for tick in scale.ticks(3))
    assert scale_over([], 0, 1).ticks()
    flat = scale_over([0.5, 0.5], 0, 100)
    assert flat(0.5) == pytest.approx(50, abs=0.1)


def test_a_forest_plot_keeps_the_order_of_an_interval():
    wide, narrow = forests([row(), row(head="depth", rule="non_inferiority", low=-0.3, bound=-0.02, passed=False)])
    for plot in (wide, narrow):
        first, second = plot.rows
        assert plot.left <= second.low < second.bound < plot.zero < first.low < first.x < first.high <= plot.right
        assert [first.state, second.state] == ["held", "broken"]
    assert forests([row(difference=None, low=None, high=None)]) is None
    assert forests([]) is None


def test_a_reported_slice_has_no_bound():
    (reported,) = forests([row(rule="reported", slice="weather=fog")])[0].rows
    assert (reported.state, reported.bound, reported.label) == ("reported", None, "weather=fog")


def test_the_champions_line_follows_promotions_alone():
    turns = [
        turn(1, 0.3, 0.2, promoted=True, name="dumb baseline"),
        turn(2, 0.2, 0.3),
        turn(3, 0.5, 0.3, promoted=True),
        turn(4, 0.9, 0.5),
    ]
    chart = history_chart(HeadHistory("lanes", "line_f1", True, turns))
    assert chart.newest == 0.5, "a refused model is no champion, whatever its metric"
    assert chart.change == pytest.approx(0.2)
    assert chart.improved
    assert [mark.state for mark in chart.marks] == ["promoted", "refused", "promoted", "refused"]
    assert not history_chart(HeadHistory("depth", "abs_rel", False, turns)).improved


def test_a_line_that_never_had_a_champion_has_no_line():
    chart = history_chart(HeadHistory("lanes", "line_f1", True, [turn(1, 0.1, 0.2, name="dumb baseline")]))
    assert (chart.newest, chart.change, chart.steps) == (None, None, "")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (2, "just now"),
        (59, "59 seconds ago"),
        (61, "1 minute ago"),
        (7200, "2 hours ago"),
        (86400 * 40, "1 month ago"),
        (86400 * 800, "2 years ago"),
        (-120, "in 2 minutes"),
    ],
)
def test_times_in_words(seconds, words):
    assert ago(AT, AT + timedelta(seconds=seconds)) == words


def test_numbers_and_texts():
    assert count(1234567) == "1\N{NARROW NO-BREAK SPACE}234\N{NARROW NO-BREAK SPACE}567"
    assert signed(-0.1234) == "\N{MINUS SIGN}0.123"
    assert coded("run `<b>` now") == "run <code>&lt;b&gt;</code> now"
    assert "</script>" not in data_block({"name": "</script><script>alert(1)</script>"})
