"""TCP ports on this machine."""

from __future__ import annotations

import socket

from services.local.refusals import CannotStart


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nothing listens on now. Another process may take it before it is used."""
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])


def is_free(host: str, port: int) -> bool:
    """Whether nothing listens on this port now."""
    try:
        with socket.create_server((host, port)):
            return True
    except OSError:
        return False


def chosen_port(host: str, wanted: int, setting: str) -> int:
    """`wanted` if it is free; any free port if it is 0.

    Raises CannotStart, which names the setting to change, when it is taken.
    """
    if wanted == 0:
        return free_port(host)
    try:
        with socket.create_server((host, wanted)):
            return wanted
    except OSError as error:
        raise CannotStart(
            f"port {wanted} on {host} can't be used ({error.strerror}): set {setting} to another port, or to 0 for any"
        ) from error
