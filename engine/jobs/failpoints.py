"""Named points where a process can be made to die, so that tests can kill it exactly there.

A stage says ``failpoints.hit("push.after_post")``. Nothing happens unless a process was started with that point armed,
which only its entry point does, from its settings; unarmed, a hit costs one look at an empty dict.
"""

from __future__ import annotations

import os
import signal

KILL = "kill"
RAISE = "raise"

_armed: dict[str, tuple[str, int]] = {}


class FailpointHit(RuntimeError):
    """A failpoint armed with "raise" was reached."""


def arm(text: str) -> None:
    """Arm points from ``name=action[@nth]``, comma-separated: ``"push.after_post=kill,score.before_record=raise@3"``.

    "kill" ends this process with SIGKILL, "raise" raises FailpointHit; each at the nth hit (the first, if not said) and
    once. An empty text disarms all. Raises ValueError when it can't be read.
    """
    armed: dict[str, tuple[str, int]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, action = part.partition("=")
        action, _, nth = action.partition("@")
        if not name or action not in (KILL, RAISE) or (nth and not (nth.isdecimal() and int(nth) > 0)):
            raise ValueError(
                f"failpoint {part!r} is not name=kill or name=raise, with @nth after it if not the first hit"
            )
        armed[name] = (action, int(nth or 1))
    _armed.clear()
    _armed.update(armed)


def hit(name: str) -> None:
    """Die here, if this point is armed and this is the hit that it is armed for."""
    if not _armed or name not in _armed:
        return
    action, remaining = _armed[name]
    if remaining > 1:
        _armed[name] = (action, remaining - 1)
        return
    del _armed[name]
    if action == KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    raise FailpointHit(name)
