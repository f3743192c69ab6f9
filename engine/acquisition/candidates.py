"""What acquisition knows of a subject that may be chosen: scalars, facts and one embedding, never pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class AcquisitionError(ValueError):
    """The input can't be chosen from; the message names the subject and what is wrong with it."""


@dataclass(frozen=True)
class Event:
    """Something that happened in the clip, at a UTC time in nanoseconds."""

    name: str
    t_ns: int


@dataclass(frozen=True)
class Candidate:
    """A scored subject of the pool.

    `quantiles` by head: the uncertainty's place in [0, 1] on the fixed reference of the model version that scored it
    (see quantiles.py); every candidate of one call is scored by the same model version. `embedding` has unit length.
    `class_scores` by head and class: the highest score of that class in the prediction. `drive_id` names what
    `capture_ns` can be compared within, which is less than a drive where a clock is wrong.
    """

    subject_id: str
    drive_id: str
    clip_id: str
    stream: str
    capture_ns: int
    quantiles: Mapping[str, float]
    embedding: Sequence[float]
    tags: Mapping[str, str] = field(default_factory=dict)
    events: Sequence[Event] = ()
    class_scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Instant:
    """A moment of a drive that is labelled or queued already, so that its neighbours are redundant."""

    drive_id: str
    stream: str
    capture_ns: int
