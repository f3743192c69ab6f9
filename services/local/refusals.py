"""What keeps the services of one machine from being started, and is the user's to mend."""

from __future__ import annotations


class CannotStart(RuntimeError):
    """Nothing was started; the message says what is in the way and what to do about it."""
