"""What a running `longtail up` leaves in the data folder, so that other commands find it and a second one keeps out."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.domain.access import new_secret

_LOCK = "up.lock"
_STATE = "state.json"
_SECRETS = "secrets.json"


@dataclass(frozen=True)
class LocalState:
    """A running set of services. It holds secrets, so its file is for its owner alone."""

    pid: int
    started_at: str  # ISO 8601, UTC
    api_url: str
    database_url: str
    redis_url: str
    label_studio_url: str
    label_studio_token: str
    label_studio_email: str | None  # None where Label Studio is not ours
    label_studio_password: str | None
    admin_token: str
    logs: str
    roles: dict[str, dict[str, Any]] = field(default_factory=dict)  # by name: state, pid, restarts


class AlreadyRunning(RuntimeError):
    """Another `longtail up` holds this data folder."""

    def __init__(self, data_dir: Path, state: LocalState | None) -> None:
        self.state = state
        where = f" (process {state.pid}, API at {state.api_url})" if state else ""
        super().__init__(
            f"Longtail is already running on {data_dir}{where}: "
            "use it, stop it, or set LONGTAIL_DATA_DIR to another folder"
        )


class DataDirLock:
    """Holds a data folder for this process; the kernel lets go of it when the process ends, however it ends."""

    def __init__(self, data_dir: Path) -> None:
        """Raises AlreadyRunning."""
        descriptor = os.open(data_dir / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise AlreadyRunning(data_dir, _load(data_dir)) from None
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


def read_state(data_dir: Path) -> LocalState | None:
    """The services that run on this data folder now; None when none do, whatever an earlier crash has left there."""
    if not (data_dir / _LOCK).exists():
        return None
    try:
        lock = DataDirLock(data_dir)
    except AlreadyRunning as running:
        return running.state
    lock.release()
    return None


def write_state(data_dir: Path, state: LocalState) -> None:
    """Replace the state file in one step."""
    _write_private(data_dir / _STATE, json.dumps(asdict(state), indent=2))


def remove_state(data_dir: Path) -> None:
    (data_dir / _STATE).unlink(missing_ok=True)


def local_secrets(data_dir: Path) -> dict[str, str]:
    """The secrets of this data folder's services, made once.

    They are signing_secret, admin_token, label_studio_password and label_studio_token.
    """
    path = data_dir / _SECRETS
    if path.exists():
        known: dict[str, str] = json.loads(path.read_text())
        return known
    made = {
        "signing_secret": secrets.token_urlsafe(32),
        "admin_token": new_secret("token"),
        "label_studio_password": secrets.token_urlsafe(12),
        "label_studio_token": secrets.token_hex(20),
    }
    _write_private(path, json.dumps(made, indent=2))
    return made


def _load(data_dir: Path) -> LocalState | None:
    try:
        return LocalState(**json.loads((data_dir / _STATE).read_text()))
    except FileNotFoundError:  # it is starting or stopping
        return None


def _write_private(path: Path, text: str) -> None:
    fresh = path.with_name(path.name + ".new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
