"""What can be erased or held, and how an erased thing is known again without keeping what it was called."""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass

from engine.domain.refusals import Invalid


@dataclass(frozen=True)
class Target:
    """A vehicle or a drive by external id (a drive's may need its vehicle's beside it), or a clip by our id."""

    vehicle: str | None = None
    drive: str | None = None
    clip: uuid.UUID | None = None

    @property
    def kind(self) -> str:
        """ "vehicle", "drive" or "clip". Raises Invalid when it names none, or a clip and something else."""
        if self.clip is not None and self.vehicle is None and self.drive is None:
            return "clip"
        if self.clip is None and self.drive is not None:
            return "drive"
        if self.clip is None and self.vehicle is not None:
            return "vehicle"
        raise Invalid(
            "target-unclear",
            "it is not clear what is meant",
            "name a vehicle, a drive (with its vehicle where several have one of that name), or a clip by its id",
        )


def tombstone_key(project_id: uuid.UUID, kind: str, *names: str) -> str:
    """What is kept of an erased thing's name: SHA-256 in hex over project, kind and names, which nobody can read back.

    Who has the database and guesses a name can check the guess, as with any hash of a short name.
    """
    return hashlib.sha256(json.dumps([str(project_id), kind, *names]).encode()).hexdigest()
