"""What the engine refuses, by the kind of reason. It knows nothing of HTTP: an edge turns a kind into its own code."""

from __future__ import annotations


class Refused(Exception):
    """Not done, on purpose. `code` names the reason for machines, `detail` for people, `hint` says what to do."""

    def __init__(self, code: str, detail: str, hint: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.hint = hint


class Unauthenticated(Refused):
    """Nobody that we know."""


class NotAllowed(Refused):
    """Known, but this is not theirs to do."""


class NotFound(Refused):
    """No such thing in this project."""


class Gone(Refused):
    """It was there, was erased, and does not come back."""


class Conflict(Refused):
    """It contradicts what is there already."""


class Invalid(Refused):
    """What was sent can't be taken as it is."""
