"""Children that look into hostile media: started when needed, limited, replaced when used up, killed when stuck."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from engine.adapters.video.channel import Channel, ChannelClosed, ChannelGarbled, ChannelTimeout
from engine.adapters.video.limits import MediaLimits
from engine.ports import MediaRejected

Message = tuple[dict[str, Any], bytes]

START_S = 60.0
PIPE_BYTES = 1 << 20
NONSENSE = "the media made its decoder answer nonsense: it is damaged or hostile"
_SOURCE_ROOT = Path(__file__).resolve().parents[3]
# Nothing of our own environment: it may hold secrets. Fewer arenas and threads keep the address space small.
_ENVIRONMENT = {
    "PYTHONPATH": str(_SOURCE_ROOT),
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class MediaPoolBusy(RuntimeError):
    """Every child was in use for longer than a request may take."""


class MediaChildFailed(RuntimeError):
    """A child did not start: the fault is in this installation or machine, not in the media."""


class MediaPool:
    """At most `size` children. Threads may share a pool; a process that was forked from ours starts with none of ours.

    A child serves one request at a time. One thread that reads frames of several videos at once needs as many children.
    """

    def __init__(self, limits: MediaLimits | None = None, size: int = 2) -> None:
        self.limits = limits or MediaLimits()
        self._size = size
        self._reset()

    def request(self, header: Mapping[str, Any], payload: bytes = b"") -> Generator[Message, None, None]:
        """The messages that answer a request, up to its end.

        A caller that stops half-way closes the generator, which ends that child. Raises MediaRejected when the media is
        refused or ends the child, MediaPoolBusy, MediaChildFailed.
        """
        child = self._take()
        whole = False
        try:
            yield from child.ask(header, payload)
            whole = True
        except MediaRejected:
            whole = child.between_requests
            raise
        finally:
            self._give_back(child, whole)

    def answer(self, header: Mapping[str, Any], payload: bytes = b"") -> Message:
        """The one message that answers a request. Raises as `request` does."""
        with closing(self.request(header, payload)) as messages:
            first, more = next(messages, None), next(messages, None)
        if first is None or more is not None:
            raise MediaRejected(NONSENSE)
        return first

    def close(self) -> None:
        """End every child that is not in use. The pool may be used again: it starts new ones."""
        with self._lock:
            idle = self._idle.copy()
            self._idle.clear()
        for child in idle:
            child.end()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._free = threading.Semaphore(self._size)
        self._idle: list[_Child] = []
        # The kernel ends a child when the *thread* that started it ends, so all are started by one that stays.
        self._starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="media-child-starter")
        self._finalizer = weakref.finalize(self, _end_all, self._idle, self._pid)

    def _take(self) -> _Child:
        if self._pid != os.getpid():
            self._finalizer.detach()
            for child in self._idle:
                child.forget()
            self._reset()
        if not self._free.acquire(timeout=self.limits.wall_s):
            raise MediaPoolBusy(
                f"all {self._size} media children were busy for {self.limits.wall_s:g} s: try again later"
            )
        try:
            with self._lock:
                while self._idle:
                    child = self._idle.pop()
                    if child.usable:
                        return child
                    child.end()
            return self._starter.submit(_Child, self.limits).result()
        except BaseException:
            self._free.release()
            raise

    def _give_back(self, child: _Child, whole: bool) -> None:
        if self._pid != os.getpid():
            return
        if whole and child.usable:
            with self._lock:
                self._idle.append(child)
        else:
            child.end()
        self._free.release()


class _Child:
    """One child process and its pipes."""

    def __init__(self, limits: MediaLimits) -> None:
        self._limits = limits
        self._started = time.monotonic()
        self._requests = 0
        self.between_requests = True
        command = [sys.executable, "-m", "engine.adapters.video.child", str(os.getpid()), limits.to_json()]
        self._process = subprocess.Popen(
            command,
            cwd=_SOURCE_ROOT,
            env=_ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # Pictures are large: with the kernel's 64 KiB a pipe costs half of the frames a second on a busy machine.
        with suppress(OSError):  # the operator's kernel may allow less
            fcntl.fcntl(self._process.stdout.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._channel = Channel(self._process.stdout.fileno(), self._process.stdin.fileno())
        self._channel.start_waiting(START_S)
        try:
            answer, _ = self._channel.receive(max_payload=0)
            if answer.get("kind") != "ready":
                raise ChannelGarbled(str(answer.get("message")))
        except (ChannelClosed, ChannelGarbled, ChannelTimeout) as error:
            ending = self._ending() if isinstance(error, ChannelClosed) else str(error)
            self.end()
            raise MediaChildFailed(f"a media child did not start: {ending}") from error

    @property
    def usable(self) -> bool:
        return (
            self.between_requests
            and self._requests < self._limits.requests_per_child
            and time.monotonic() - self._started < self._limits.child_age_s
            and self._process.poll() is None
        )

    def ask(self, header: Mapping[str, Any], payload: bytes) -> Generator[Message, None, None]:
        self.between_requests = False
        self._requests += 1
        self._channel.start_waiting(self._limits.wall_s)
        largest = max(self._limits.pixels * 3, self._limits.frames * 8)
        try:
            self._channel.send(header, payload)
            while True:
                answer, content = self._channel.receive(max_payload=largest)
                if answer.get("kind") == "done":
                    self.between_requests = True
                    return
                if answer.get("kind") == "rejected":
                    self.between_requests = True
                    raise MediaRejected(str(answer.get("message"))[:2000])
                if answer.get("kind") == "failed":
                    raise MediaRejected(f"{NONSENSE} ({str(answer.get('message'))[:500]})")
                yield answer, content
        except ChannelTimeout as error:
            raise MediaRejected(
                f"looking into this media took more than {self._limits.wall_s:g} s: send a shorter or smaller one"
            ) from error
        except ChannelGarbled as error:
            raise MediaRejected(NONSENSE) from error
        except ChannelClosed as error:
            raise MediaRejected(
                f"the media ended its decoder ({self._ending()}): it is damaged, hostile or too large; "
                "record it as H.264 in MP4 and send it again"
            ) from error

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close_pipes()

    def forget(self) -> None:
        """In a forked process: the child is the parent's; leave it running and only close our copies of its pipes."""
        self._process.returncode = 0  # else its finaliser waits for a process that is not ours
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _ending(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "it closed its pipe"
        return f"signal {-code}" if code < 0 else f"exit code {code}"


def _end_all(children: list[_Child], pid: int) -> None:
    if pid == os.getpid():
        for child in children:
            child.end()
