"""Geometry of the charts that are drawn on the server, as SVG: they are crisp, need no script and follow the theme."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.queries.loop_history import HeadHistory, Turn


@dataclass(frozen=True)
class Scale:
    """Maps a range of values to a range of pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Pixels, rounded to a tenth so that pages stay small."""
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values inside the range, about so many of them."""
        step = _round_step((self.high - self.low) / max(about, 1))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(index * step, 10) for index in range(first, last + 1)]


def scale_over(values: Iterable[float], start: float, end: float, room: float = 0.06) -> Scale:
    """A scale that holds all values, with a little room at both ends."""
    known = [value for value in values if math.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if high - low < 1e-9:
        low, high = low - 0.05, high + 0.05
    spare = (high - low) * room
    return Scale(low - spare, high + spare, start, end)


@dataclass(frozen=True)
class ForestRow:
    """One interval of a forest plot. `state`: "held", "broken" or "reported"."""

    label: str
    note: str
    y: float
    x: float | None
    low: float | None
    high: float | None
    bound: float | None
    state: str
    figures: str


@dataclass(frozen=True)
class Forest:
    """A forest plot: differences with their intervals against the bound that each lower end had to reach."""

    width: int
    height: int
    left: float
    right: float
    zero: float
    rows: Sequence[ForestRow]
    ticks: Sequence[tuple[float, str]]


ROW_HEIGHT, AXIS_HEIGHT, TOP = 44, 34, 12


def forests(rows: Sequence[Mapping[str, Any]]) -> tuple[Forest, Forest] | None:
    """A report's rows as a plot for wide pages and one for a phone; None where nothing was measured."""
    wide, narrow = _forest(rows, 720, 190, 6), _forest(rows, 350, 118, 3)
    return (wide, narrow) if wide and narrow else None


def _forest(rows: Sequence[Mapping[str, Any]], width: int, label_width: int, about: int) -> Forest | None:
    """All rows share one axis: each is a difference in points of its own metric, in which positive is better."""
    measured = [row for row in rows if row["difference"] is not None]
    if not measured:
        return None
    values = [row[key] for row in measured for key in ("low", "high", "bound") if row[key] is not None] + [0.0]
    scale = scale_over(values, label_width, width - 16)
    drawn = []
    for index, row in enumerate(measured):
        reported = row["rule"] == "reported"
        drawn.append(
            ForestRow(
                label=row["head"] if row["slice"] is None else row["slice"],
                note=f"{row['metric']}, {str(row['rule']).replace('_', '-')}",
                y=TOP + ROW_HEIGHT * (index + 0.5),
                x=scale(row["difference"]),
                low=_at(scale, row["low"]),
                high=_at(scale, row["high"]),
                bound=None if reported else _at(scale, row["bound"]),
                state="reported" if reported else "held" if row["passed"] else "broken",
                figures=_figures(row),
            )
        )
    height = TOP + ROW_HEIGHT * len(drawn) + AXIS_HEIGHT
    ticks = [(scale(tick), _tick(tick)) for tick in scale.ticks(about)]
    return Forest(width, height, label_width, width - 16, scale(0.0), drawn, ticks)


@dataclass(frozen=True)
class Mark:
    """A challenger in a history chart, with the interval around it and the address of its report."""

    x: float
    y: float
    low: float | None
    high: float | None
    state: str
    report_id: uuid.UUID
    title: str


@dataclass(frozen=True)
class HistoryChart:
    """A head's metric from report to report: challengers as marks, the champion as a line of steps."""

    head: str
    metric: str
    better: str
    newest: float | None
    change: float | None
    improved: bool | None
    width: int
    height: int
    steps: str
    marks: Sequence[Mark]
    ticks: Sequence[tuple[float, str]]
    labels: Sequence[tuple[float, str]]


LEFT, RIGHT, HISTORY_TOP, BOTTOM = 40, 14, 10, 22


def history_chart(of: HeadHistory, width: int = 320, height: int = 150) -> HistoryChart:
    """The chart of one head."""
    turns = [turn for turn in of.turns if turn.value is not None]
    values = [value for turn in turns for value in (turn.value, turn.low, turn.high) if value is not None]
    y = scale_over(values, height - BOTTOM, HISTORY_TOP)
    step = (width - LEFT - RIGHT) / max(len(turns), 1)
    places = [round(LEFT + step * (index + 0.5), 1) for index in range(len(turns))]
    marks = [
        Mark(
            x=x,
            y=y(turn.value or 0.0),
            low=_at(y, turn.low),
            high=_at(y, turn.high),
            state="promoted" if turn.promoted else turn.verdict,
            report_id=turn.report_id,
            title=_title(turn, of.metric),
        )
        for x, turn in zip(places, turns, strict=True)
    ]
    champions = _champions(turns)
    known = [value for value in champions if value is not None]
    every = max(1, math.ceil(len(turns) / 8))
    change = known[-1] - known[0] if len(known) > 1 else None
    return HistoryChart(
        head=of.head,
        metric=of.metric,
        better="higher is better" if of.higher_is_better else "lower is better",
        newest=known[-1] if known else None,
        change=change,
        improved=None if not change else (change > 0) == of.higher_is_better,
        width=width,
        height=height,
        steps=_steps(places, champions, y, step),
        marks=marks,
        ticks=[(y(tick), _tick(tick, plus=False)) for tick in y.ticks(3)],
        labels=[
            (x, f"v{turn.challenger}")
            for index, (x, turn) in enumerate(zip(places, turns, strict=True))
            if index % every == 0
        ],
    )


def _champions(turns: Sequence[Turn]) -> list[float | None]:
    """The champion's metric after each report: the challenger's where it took over, else what it was held against."""
    after: list[float | None] = []
    for turn in turns:
        before = turn.reference if turn.reference_name == "champion" else (after[-1] if after else None)
        after.append(turn.value if turn.promoted else before)
    return after


def _steps(places: Sequence[float], values: Sequence[float | None], y: Scale, step: float) -> str:
    """An SVG path that holds each value from its report to the next."""
    path = []
    for index, (x, value) in enumerate(zip(places, values, strict=True)):
        if value is None:
            continue
        end = x + step if index + 1 < len(places) else x + step / 2
        joined = index > 0 and values[index - 1] is not None
        path.append(f"{'L' if joined else 'M'}{x} {y(value)}H{round(end, 1)}")
    return "".join(path)


def _title(turn: Turn, metric: str) -> str:
    figures = f"v{turn.challenger}: {metric} {turn.value:.3f}"
    if turn.reference is not None:
        figures += f", {turn.reference_name} {turn.reference:.3f}"
    return f"{figures}; {'promoted' if turn.promoted else turn.verdict}"


def _figures(row: Mapping[str, Any]) -> str:
    def told(value: float | None) -> str:
        return "unknown" if value is None else f"{value:+.4f}"

    return (
        f"{row['head']}{' in ' + row['slice'] if row['slice'] else ''}: better by {told(row['difference'])} "
        f"[{told(row['low'])}, {told(row['high'])}], bound {told(row['bound'])}"
    )


def _at(scale: Scale, value: float | None) -> float | None:
    return None if value is None else scale(value)


def _round_step(rough: float) -> float:
    magnitude = 10 ** math.floor(math.log10(rough))
    return next((m * magnitude for m in (1, 2, 5) if m * magnitude >= rough), 10 * magnitude)


def _tick(value: float, plus: bool = True) -> str:
    if value == 0:
        return "0"
    text = f"{value:+g}" if plus else f"{value:g}"
    return text.replace("-", "\N{MINUS SIGN}")
