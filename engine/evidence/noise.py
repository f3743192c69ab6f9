"""Margins of non-inferiority from measured noise between seeds, not from taste.

Two trainings that differ in nothing but the seed give metrics that differ. A challenger that is worse by no more than
that is not shown to be worse: the margin is the upper (1 - alpha) bound of the difference of two such runs, t(1 -
alpha, df) * sqrt(2) * s, with the pooled standard deviation s (Bouthillier et al., "Accounting for Variance in Machine
Learning Benchmarks", arXiv:2103.03098; Student's t because s is itself measured on few runs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.evidence.student_t import quantile

FLOOR = 0.001


class NoiseError(ValueError):
    """The noise was not measured, so no margin can be given; the message says what is missing."""


@dataclass(frozen=True)
class Margin:
    """How much worse a head's metric may be, in the metric's own units, and what that was measured on."""

    value: float
    standard_deviation: float
    degrees_of_freedom: int
    runs: int


def margin(repeats: Sequence[Sequence[float]], *, alpha: float = 0.05, floor: float = FLOOR) -> Margin:
    """The margin from `repeats`: for each setting, the metric of its runs, which differ in the seed alone.

    Settings with one run say nothing and are left out. Degrees of freedom: runs minus settings. `floor` (above 0)
    holds where runs came out the same, which two seeds may do by luck. Raises NoiseError when no setting has two
    runs or a metric isn't finite, ValueError for a floor that isn't above 0.
    """
    if not (math.isfinite(floor) and floor > 0):
        raise ValueError(f"the floor is {floor}: a margin must be above 0")
    if any(not math.isfinite(value) for values in repeats for value in values):
        raise NoiseError("a run's metric is not finite: its noise can't be measured")
    settings = [list(values) for values in repeats if len(values) >= 2]
    if not settings:
        raise NoiseError("no setting was trained with two seeds or more: measure the noise first")
    squares = sum((value - math.fsum(values) / len(values)) ** 2 for values in settings for value in values)
    runs = sum(len(values) for values in settings)
    degrees = runs - len(settings)
    deviation = math.sqrt(squares / degrees)
    return Margin(
        value=max(floor, quantile(1 - alpha, degrees) * math.sqrt(2) * deviation),
        standard_deviation=deviation,
        degrees_of_freedom=degrees,
        runs=runs,
    )
