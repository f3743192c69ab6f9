"""The pipe between us and the child that decodes: messages of a JSON header and raw bytes.

On the wire: the header's length (4 bytes, big-endian), the header (a JSON object), then `header["payload"]` raw bytes.
Neither end trusts the lengths that it reads.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections.abc import Mapping
from typing import Any

HEADER_BYTES = 1 << 20
_LENGTH = struct.Struct(">I")


class ChannelClosed(ConnectionError):
    """The other end is gone."""


class ChannelTimeout(TimeoutError):
    """The other end was silent for longer than it may be."""


class ChannelGarbled(ValueError):
    """The other end sent what is no message, or one that is too large."""


class Channel:
    """One end of a pair of pipes. Not for two threads at once.

    Only time spent waiting for the other end counts against the limit of `start_waiting`.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._left_s: float | None = None
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)

    def start_waiting(self, limit_s: float | None) -> None:
        """From here on, wait `limit_s` seconds in all (None: for ever)."""
        self._left_s = limit_s

    def send(self, header: Mapping[str, Any], payload: bytes | bytearray | memoryview = b"") -> None:
        text = json.dumps({**header, "payload": len(payload)}).encode()
        self._write(_LENGTH.pack(len(text)) + text)
        self._write(payload)

    def receive(self, max_payload: int) -> tuple[dict[str, Any], bytes]:
        """The next message. Raises ChannelClosed, ChannelTimeout, ChannelGarbled."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if length > HEADER_BYTES:
            raise ChannelGarbled(f"a header of {length} bytes")
        try:
            header = json.loads(self._read(length))
        except ValueError as error:
            raise ChannelGarbled("a header that is not JSON") from error
        size = header.get("payload") if isinstance(header, dict) else None
        if not isinstance(size, int) or not 0 <= size <= max_payload:
            raise ChannelGarbled(f"a payload of {size!r} bytes, at most {max_payload} are expected")
        return header, self._read(size)

    def _read(self, size: int) -> bytes:
        # Grown as bytes come, so that a length alone costs no memory.
        chunks: list[bytes] = []
        left = size
        while left:
            try:
                chunk = os.read(self._read_fd, min(left, 1 << 20))
            except BlockingIOError:
                self._wait(self._read_fd, select.POLLIN)
                continue
            if not chunk:
                raise ChannelClosed("the other end closed the pipe")
            chunks.append(chunk)
            left -= len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _write(self, content: bytes | bytearray | memoryview) -> None:
        view = memoryview(content).cast("B")
        while view:
            try:
                view = view[os.write(self._write_fd, view) :]
            except BlockingIOError:
                self._wait(self._write_fd, select.POLLOUT)
            except BrokenPipeError as error:
                raise ChannelClosed("the other end closed the pipe") from error

    def _wait(self, descriptor: int, event: int) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        if self._left_s is None:
            poll.poll()
            return
        started = time.monotonic()
        ready = poll.poll(max(self._left_s, 0.0) * 1000)
        self._left_s -= time.monotonic() - started
        if not ready:
            raise ChannelTimeout("the other end was silent for too long")
