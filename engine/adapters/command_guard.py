"""Runs a command so that nothing of it outlives it, or us: `python command_guard.py COMMAND…`.

A shell script or a launcher starts processes of its own, which the kernel would leave running when only their parent is
killed. This process adopts them all, and ends them when it is told to (SIGTERM, which it also gets when its own parent
dies) and when the command is over. It exits with the command's code; 128 + N for one that signal N ended.
"""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time
from contextlib import suppress
from types import FrameType

import psutil

_PR_SET_CHILD_SUBREAPER = 36
MISSING = 127
GIVE_UP_S = 10.0


class _Told(BaseException):
    """SIGTERM or SIGINT."""


def main(command: list[str]) -> int:
    """Returns the exit code."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise _Told

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    code = 128 + signal.SIGTERM
    try:
        code = subprocess.Popen(command, start_new_session=True).wait()
    except _Told:
        pass
    except OSError as error:
        print(f"{command[0]} can't be started: {error.strerror}", file=sys.stderr)
        code = MISSING
    finally:
        _end_all()
    return code if code >= 0 else 128 - code


def _end_all() -> None:
    """Kill every descendant, those that ran away into sessions of their own included, until there is none."""
    deadline = time.monotonic() + GIVE_UP_S
    while time.monotonic() < deadline:
        left = psutil.Process().children(recursive=True)
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=1.0)
        if not left:
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
