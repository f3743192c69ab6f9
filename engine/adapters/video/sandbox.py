"""What the decoding child gives up before it looks at anything: time, memory, files, the network, new programs."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_RET_ALLOW = 0x7FFF0000
_RET_EPERM = 0x00050000 | 1
_X32_CALLS = 0x40000000  # the same calls once more under other numbers

# What no demuxer or decoder needs and an exploited one would: sockets, new programs, other processes, the file tree.
# Numbers on x86_64 and aarch64, None where the machine lacks the call.
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "accept": (43, 202),
    "sendto": (44, 206),
    "bind": (49, 200),
    "listen": (50, 201),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "pidfd_send_signal": (424, 424),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "truncate": (76, 45),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "link": (86, None),
    "linkat": (265, 37),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "chmod": (90, None),
    "fchmodat": (268, 53),
    "mount": (165, 40),
    "unshare": (272, 97),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
}
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # AUDIT_ARCH, column above


class ParentGone(RuntimeError):
    """The process that started us has died already."""


def enter(parent_pid: int, memory_bytes: int) -> None:
    """Bind this process's life to its parent's and drop what it may do. For Linux. Raises ParentGone."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        raise ParentGone("the parent died before its death could be watched")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the parent, which ends us
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _deny_system_calls(libc)


def allow_cpu(seconds: int) -> None:
    """From now on, `seconds` more of CPU time; past them the kernel ends this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds + 1, hard))


def _deny_system_calls(libc: ctypes.CDLL) -> bool:
    """Install the seccomp filter; False where the kernel or the machine has none, and the other limits still hold."""
    if platform.machine() not in _ARCHITECTURES or struct.calcsize("P") != 8:
        return False
    architecture, column = _ARCHITECTURES[platform.machine()]
    program = _filter(architecture, [call[column] for call in _DENIED.values()])
    code = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    header = Program(len(program) // 8, ctypes.addressof(code))
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(header), 0, 0) == 0)


def _filter(architecture: int, denied: list[int | None]) -> bytes:
    """Classic BPF over `struct seccomp_data` (number at 0, architecture at 4): EPERM for what is denied."""

    def step(code: int, jump_true: int, jump_false: int, value: int) -> bytes:
        return struct.pack("=HBBI", code, jump_true, jump_false, value)

    load, equal, at_least, leave = 0x20, 0x15, 0x35, 0x06
    numbers = [number for number in denied if number is not None]
    steps = [step(load, 0, 0, 4), step(equal, 1, 0, architecture), step(leave, 0, 0, _RET_EPERM), step(load, 0, 0, 0)]
    steps.append(step(at_least, len(numbers) + 1, 0, _X32_CALLS))
    for place, number in enumerate(numbers):
        steps.append(step(equal, len(numbers) - place, 0, number))  # to the last step
    steps.append(step(leave, 0, 0, _RET_ALLOW))
    steps.append(step(leave, 0, 0, _RET_EPERM))
    return b"".join(steps)
