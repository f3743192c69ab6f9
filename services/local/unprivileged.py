"""The user that PostgreSQL runs as. PostgreSQL refuses to run as root, so root needs another one for it."""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.local.refusals import CannotStart

# A system user made for this comes first; every Linux has the other one.
CANDIDATES = ("longtail", "nobody")


@dataclass(frozen=True)
class Account:
    """A user of this machine, and whether we have to become it."""

    name: str
    uid: int
    gid: int
    switched: bool

    def own(self, path: Path) -> None:
        """Give the file or folder to this user."""
        if self.switched:
            os.chown(path, self.uid, self.gid)

    def can_enter(self, folder: Path) -> bool:
        """Whether this user could open a file of `folder`, given that it may read the folder itself.

        Walks up to the root, as the kernel does: one private folder on the way (such as /root) hides all below it.
        """
        if not self.switched:
            return True
        return all(self._may_pass(parent) for parent in folder.resolve().parents)

    def _may_pass(self, folder: Path) -> bool:
        try:
            status = folder.stat()
        except FileNotFoundError:
            return True  # to be made by us
        if status.st_uid == self.uid:
            return bool(status.st_mode & 0o100)
        if status.st_gid == self.gid:
            return bool(status.st_mode & 0o010)
        return bool(status.st_mode & 0o001)


def unprivileged_account() -> Account:
    """Ourselves, or for root the first of CANDIDATES that exists. Raises RuntimeError when none does."""
    uid = os.geteuid()
    if uid != 0:
        entry = pwd.getpwuid(uid)
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, switched=False)
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, switched=True)
    raise CannotStart(
        "PostgreSQL can't run as root, and there is no user to run it as: make one with `useradd --system longtail`"
    )


def run_as(account: Account, command: list[str], environment: dict[str, str]) -> None:
    """Run a command to its end as this user. Raises RuntimeError with what it said when it fails."""
    switch: dict[str, Any] = {"user": account.uid, "group": account.gid, "extra_groups": []} if account.switched else {}
    done = subprocess.run(
        command, env=environment, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, **switch
    )
    if done.returncode != 0:
        raise CannotStart(f"{Path(command[0]).name} failed ({done.returncode}): {(done.stderr or done.stdout).strip()}")
