"""Which frames of a stream are looked at."""

from __future__ import annotations

from collections.abc import Sequence


def sample(pts: Sequence[int], time_base_num: int, time_base_den: int, *, every_s: float, most: int) -> list[int]:
    """The PTS of at most `most` frames, `every_s` seconds apart or more, the first one included.

    `pts` is ascending, in units of the time base (`time_base_num` / `time_base_den` seconds). Where `every_s` gives
    more than `most` frames they are spread over the whole stream, so that the end of a long clip is looked at too.
    Raises ValueError for a negative interval or less than one frame.
    """
    if every_s < 0 or most < 1:
        raise ValueError(f"every_s is {every_s} and most is {most}: they must be 0 or more, and 1 or more")
    step = every_s * time_base_den / time_base_num
    chosen: list[int] = []
    for value in pts:
        # Half a tick of grace: a stream's period is seldom a whole number of ticks.
        if not chosen or value - chosen[-1] >= step - 0.5:
            chosen.append(value)
    if len(chosen) <= most:
        return chosen
    if most == 1:
        return chosen[:1]
    return [chosen[i * (len(chosen) - 1) // (most - 1)] for i in range(most)]
