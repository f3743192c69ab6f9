"""The keys that a demo works with: made once on a data folder, and kept in it for its owner alone."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass

from engine.stages import access
from engine.store.projects import ensure_default
from services.wiring import Wiring

FILE = "demo.json"


@dataclass(frozen=True)
class Credentials:
    """A device's key for the fleet, a token for what is imported and registered, and what labelers sign in with."""

    device_key: str
    token: str
    labeler_password: str


def credentials(wiring: Wiring, name: str) -> Credentials:
    """The demo's keys on this data folder."""
    path = wiring.settings.data_dir / FILE
    if path.exists():
        return Credentials(**json.loads(path.read_text()))
    with wiring.database.unit() as unit:
        project = ensure_default(unit.session)
        scopes = ["labels:write", "models:read", "models:write"]
        _, key = access.make_device(unit, project.id, name, [], True, "demo")
        _, token = access.make_token(unit, project.id, name, scopes, None, "demo")
        unit.commit()
    made = Credentials(key, token, secrets.token_urlsafe(12))
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(asdict(made), file)
    return made
