"""Temporal non-maximum suppression: of neighbouring frames of one stream, keep the one with the highest score.

Greedy suppression by score, as for boxes in Neubeck & Van Gool, "Efficient Non-Maximum Suppression" (2006), on the
time axis. Consecutive frames are near copies: labelling both costs twice and teaches once.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence

from engine.acquisition.candidates import Candidate, Instant


def suppress(
    candidates: Sequence[Candidate], scores: Sequence[float], window_ns: int, occupied: Iterable[Instant] = ()
) -> list[int]:
    """Indices of the candidates that stay, best first.

    One is suppressed when a kept or `occupied` instant of the same drive and stream is less than `window_ns` away:
    where one clip ends and the next begins, the scene goes on.
    Equal scores are broken by the lower subject id, so the answer doesn't depend on the input's order.
    Raises ValueError when lengths differ, the window is negative or a score is NaN.
    """
    if len(candidates) != len(scores):
        raise ValueError(f"{len(candidates)} candidates, {len(scores)} scores")
    if window_ns < 0:
        raise ValueError(f"the window is {window_ns} ns, less than nothing")
    if any(score != score for score in scores):
        raise ValueError("a score is NaN")
    kept_times: dict[tuple[str, str], list[int]] = defaultdict(list)
    for instant in occupied:
        insort(kept_times[instant.drive_id, instant.stream], instant.capture_ns)
    kept: list[int] = []
    for index in sorted(range(len(candidates)), key=lambda i: (-scores[i], candidates[i].subject_id)):
        candidate = candidates[index]
        times = kept_times[candidate.drive_id, candidate.stream]
        place = bisect_left(times, candidate.capture_ns)
        neighbours = times[max(0, place - 1) : place + 1]
        if any(abs(time - candidate.capture_ns) < window_ns for time in neighbours):
            continue
        times.insert(place, candidate.capture_ns)
        kept.append(index)
    return kept
