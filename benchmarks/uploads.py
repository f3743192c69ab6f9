"""Clients that send clips as fast as a server takes them, and what that came to."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from benchmarks.clip_bodies import CONTENT_TYPE, ClipMaker


@dataclass(frozen=True)
class Target:
    """A server that takes uploads, and the folder where it keeps them."""

    name: str
    url: str
    token: str
    kept: Path

    def forget(self) -> None:
        """Remove what was kept, so that a long run doesn't fill the disk. Nobody may be sending meanwhile."""
        for path in [path for path in self.kept.rglob("*") if path.is_file()]:
            path.unlink()


@dataclass(frozen=True)
class Speed:
    """Clips that were acknowledged in so many seconds."""

    clips: int
    seconds: float

    @property
    def clips_per_s(self) -> float:
        return self.clips / self.seconds


class Client:
    """One vehicle's connection, kept open. It sends bytes that lie ready, so that it costs the machine little."""

    def __init__(self, target: Target, drive: str) -> None:
        """Raises ConnectionRefusedError."""
        address = urlsplit(target.url)
        self._socket = socket.create_connection((str(address.hostname), int(address.port or 80)), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = (
            "POST /v1/clips HTTP/1.1\r\nHost: x\r\n"
            f"Content-Type: {CONTENT_TYPE}\r\nAuthorization: Bearer {target.token}\r\n"
        )
        self._drive = drive

    def send(self, clips: ClipMaker) -> None:
        """Raises RuntimeError when the clip is not taken."""
        pieces = clips.upload(self._drive)
        head = f"{self._head}Content-Length: {sum(map(len, pieces))}\r\n\r\n".encode()
        for piece in (head, *pieces):
            self._socket.sendall(piece)
        answer = http.client.HTTPResponse(self._socket)
        answer.begin()
        said = answer.read()
        if answer.status != 202:
            raise RuntimeError(f"a clip was answered with {answer.status}: {said.decode(errors='replace')[:300]}")

    def close(self) -> None:
        self._socket.close()


def send_for(target: Target, clips: ClipMaker, seconds: float, clients: int) -> Speed:
    """Send for so long, with this many clients at once; the last answers are waited for."""
    return _send(target, clips, clients, lambda sent, took: took >= seconds)


def send_times(target: Target, clips: ClipMaker, times: int, clients: int) -> Speed:
    """Send so many clips by each of this many clients at once."""
    return _send(target, clips, clients, lambda sent, took: sent >= times)


def _send(target: Target, clips: ClipMaker, clients: int, is_enough: Callable[[int, float], bool]) -> Speed:
    start = threading.Barrier(clients + 1, timeout=60)

    def drive(number: int) -> int:
        client = Client(target, f"drive-{number}")
        try:
            start.wait()
            begun, sent = time.monotonic(), 0
            while not is_enough(sent, time.monotonic() - begun):
                client.send(clips)
                sent += 1
            return sent
        finally:
            client.close()

    with ThreadPoolExecutor(clients) as threads:
        running = [threads.submit(drive, number) for number in range(clients)]
        start.wait()
        begun = time.monotonic()
        sent = sum(each.result() for each in running)
        return Speed(sent, time.monotonic() - begun)


def most_memory(process: psutil.Process, act: Callable[[], object]) -> float:
    """The most MiB that the process and its children had resident together while `act` ran."""
    most, over = _resident(process), threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.02):
            most = max(most, _resident(process))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        act()
    finally:
        over.set()
        watcher.join()
    return most / (1 << 20)


def _resident(process: psutil.Process) -> float:
    total = 0.0
    for each in (process, *process.children(recursive=True)):
        try:
            total += each.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total
