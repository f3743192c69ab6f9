"""Runs a program that can't outlive whoever started it: `python launch.py PARENT SIGNAL UID GID PROGRAM [ARGUMENT…]`.

Becomes the user UID and the group GID (-1 keeps), asks the kernel for SIGNAL when the parent dies, and becomes PROGRAM.
A script of its own, which imports nothing of ours, because code between fork and exec is not safe in a process
with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Never returns: the process becomes the program, or exits 127 when it can't."""
    parent, death_signal, uid, gid = (int(text) for text in arguments[:4])
    program = arguments[4:]
    if uid >= 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    # After the change of user, which would clear it.
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal) != 0:
        sys.exit(f"prctl failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it died before the kernel was asked
        os.kill(os.getpid(), signal.SIGKILL)
    os.umask(0o077)  # what a service writes is its owner's alone
    try:
        os.execvp(program[0], program)
    except OSError as error:
        print(f"{program[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
