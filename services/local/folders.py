"""Where one machine's services keep their sockets and their data.

A Unix socket's path may have about 100 characters, and a folder deep in somebody's home is soon longer, so sockets
live in a short folder of their own whose name is made from the data folder's.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from services.local.refusals import CannotStart
from services.local.unprivileged import Account

# A server's socket file name is added to a folder's path, and the kernel takes 107 characters in all.
_LONGEST_SOCKET_FOLDER = 80


def digest(data_dir: Path) -> str:
    """A short name for a data folder, the same at every start."""
    return hashlib.sha256(str(data_dir.resolve()).encode()).hexdigest()[:12]


def make_private(folder: Path, account: Account | None = None) -> Path:
    """Make the folder with mode 0700 for the account (ourselves by default); one that is another's is refused.

    Raises PermissionError when someone else has made it first, as anyone may in a shared temporary folder.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    wanted = account.uid if account else os.geteuid()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (wanted, os.geteuid()):
        raise PermissionError(
            f"{folder} belongs to someone else: remove it, or set LONGTAIL_DATA_DIR to another folder"
        )
    if account:
        account.own(folder)
    folder.chmod(0o700)
    return folder


def runtime_folder(data_dir: Path) -> Path:
    """The short folder that holds the sockets' folders of this data folder; made where it is missing.

    Its mode is 0711 and each socket's folder in it is 0700, because PostgreSQL's belongs to another user than the rest.
    """
    uid = os.geteuid()
    name = f"longtail-{digest(data_dir)}"
    bases = [Path("/run") if uid == 0 else Path(f"/run/user/{uid}"), Path(tempfile.gettempdir()), Path("/tmp")]
    for base in bases:
        if os.access(base, os.W_OK | os.X_OK) and len(str(base / name)) <= _LONGEST_SOCKET_FOLDER:
            folder = make_private(base / name)
            folder.chmod(0o711)
            return folder
    raise CannotStart(f"no place for sockets: none of {', '.join(map(str, bases))} is writable and short")


def postgres_folder(data_dir: Path, account: Account) -> Path:
    """Where PostgreSQL's data lies: in the data folder, unless its user can't get there.

    Root's home is closed to everyone else, so for a data folder below it the database lies in /var/lib/longtail.
    """
    if account.can_enter(data_dir / "postgres"):
        return data_dir / "postgres"
    elsewhere = Path("/var/lib/longtail") / digest(data_dir)
    elsewhere.mkdir(parents=True, exist_ok=True)
    for folder in (elsewhere.parent, elsewhere):
        folder.chmod(0o711)
    return elsewhere / "postgres"
