"""Who asks: people and services with scoped tokens, devices with keys for their vehicles."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from dataclasses import dataclass

from engine.domain.refusals import NotAllowed

ADMIN = "admin"
SCOPES = (
    ADMIN,
    "clips:read",
    "clips:write",
    "queue:read",
    "queue:write",
    "campaigns:read",
    "campaigns:write",
    "labels:read",
    "labels:write",
    "datasets:read",
    "runs:read",
    "models:read",
    "models:write",
    "schedules:read",
    "schedules:write",
    "jobs:read",
    "jobs:write",
    "ontologies:read",
    "ontologies:write",
    "metrics:read",
    "erasures:read",
    "erasures:write",
    "holds:read",
    "holds:write",
)
"""`admin` holds all of them, and alone may make and revoke devices and tokens."""

DEVICE_SCOPES = frozenset({"clips:write", "labels:write"})
"""What any device's key may do, for its own vehicles."""


@dataclass(frozen=True)
class Principal:
    """A caller whose secret was found. `vehicles` counts for devices that are bound to some."""

    kind: str  # "token" or "device"
    id: uuid.UUID
    name: str
    project_id: uuid.UUID
    scopes: frozenset[str]
    any_vehicle: bool = True
    vehicles: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    def may(self, scope: str) -> bool:
        return ADMIN in self.scopes or scope in self.scopes

    def demand(self, scope: str) -> None:
        """Raises NotAllowed unless this caller has the scope."""
        if not self.may(scope):
            raise NotAllowed(
                "missing-scope",
                f"{self.kind} {self.name!r} may not do this: it needs the scope {scope!r}",
                "use a token that has the scope; an administrator makes one with `longtail tokens create`",
            )

    def may_send_for(self, vehicle: str) -> bool:
        """Whether it may send, and see, what belongs to the vehicle with this external id."""
        return self.any_vehicle or vehicle in self.vehicles


def new_secret(kind: str) -> str:
    """A secret of 256 random bits, to be shown once; its prefix tells people and scanners what it is."""
    return f"lt_{kind}_{secrets.token_urlsafe(32)}"


def secret_sha256(secret: str) -> str:
    """What is kept of a secret. It has 256 random bits, so a plain hash can't be turned back by guessing."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
