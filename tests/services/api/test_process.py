"""The API as a process: what it loads, what an upload costs it, what it leaves behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

ROOT = Path(__file__).resolve().parents[3]
LOADED = """
import json, sys
from services.api.app import make_app
from services.settings import Settings
make_app(Settings()).openapi()
print(json.dumps(sorted(sys.modules)))
"""


def test_it_loads_neither_torch_nor_the_networks_nor_the_workers(api: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        env=api.settings.child_environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    loaded = set(json.loads(done.stdout))
    assert "services.api.routes.clips" in loaded
    for name in ("torch", "torchvision", "models", "services.workers", "label_studio_sdk"):
        assert name not in loaded


@pytest.fixture
def process(api: Any) -> Iterator[tuple[str, psutil.Process]]:
    """The API in a process of its own, over the same database and blobs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = api.settings.with_values(api_port=port, max_upload_bytes=64 << 20)
    child = subprocess.Popen([sys.executable, "-m", "services.api.serve"], env=settings.child_environment(), cwd=ROOT)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                assert httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5, trust_env=False).status_code == 200
                break
            except httpx.ConnectError:
                assert child.poll() is None, "the API ended"
                assert time.monotonic() < deadline, "the API did not start"
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}", psutil.Process(child.pid)
    finally:
        child.terminate()
        assert child.wait(20) == 0 or child.returncode == -15


def test_a_large_upload_is_never_whole_in_memory_and_too_large_a_one_is_refused(
    api: Any, manifest: Callable[..., Any], process: tuple[str, psutil.Process]
) -> None:
    url, running = process
    headers = {"Authorization": api.device("sim-07").headers["authorization"]}
    before = running.memory_info().rss
    most = 0

    def parts(size: int) -> Iterator[bytes]:
        nonlocal most
        yield b'--x\r\nContent-Disposition: form-data; name="stream:front"\r\n\r\n'
        for _ in range(size >> 20):
            yield os.urandom(1 << 20)
            most = max(most, running.memory_info().rss)
        yield b'\r\n--x\r\nContent-Disposition: form-data; name="manifest"\r\n\r\n'
        yield json.dumps(manifest()).encode() + b"\r\n--x--\r\n"

    headers["Content-Type"] = "multipart/form-data; boundary=x"
    with httpx.Client(base_url=url, timeout=60, headers=headers, trust_env=False) as client:
        answer = client.post("/v1/clips", content=parts(60 << 20))
        assert (answer.status_code, answer.json()["type"]) == (422, "/problems/media-rejected")
        assert most - before < 30 << 20, f"grew by {(most - before) >> 20} MiB for an upload of 60 MiB"
        answer = client.post("/v1/clips", content=parts(66 << 20))
        assert (answer.status_code, answer.json()["type"]) == (413, "/problems/too-large")
    assert api.blob_files() == []


def test_an_upload_that_says_it_is_too_large_is_refused_before_it_is_read(api: Any) -> None:
    address = urlsplit(api.url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(
            f"POST /v1/clips HTTP/1.1\r\nHost: x\r\nContent-Length: {1 << 40}\r\n"
            f"Authorization: {api.device().headers['authorization']}\r\n"
            "Content-Type: multipart/form-data; boundary=x\r\n\r\n--x".encode()
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_an_upload_that_breaks_off_leaves_nothing(api: Any) -> None:
    key = api.device("sim-07").headers["authorization"]
    address = urlsplit(api.url)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(
            f"POST /v1/clips HTTP/1.1\r\nHost: x\r\nAuthorization: {key}\r\nContent-Length: 9000000\r\n"
            "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
            '--x\r\nContent-Disposition: form-data; name="stream:front"\r\n\r\n'.encode()
        )
        for _ in range(3):
            connection.sendall(os.urandom(1 << 20))
        deadline = time.monotonic() + 10
        while not api.blob_files():
            assert time.monotonic() < deadline, "the upload did not begin"
            time.sleep(0.01)
    while api.blob_files():
        assert time.monotonic() < deadline + 10, "the broken upload was not dropped"
        time.sleep(0.01)
    assert api.client(None).get("/healthz").status_code == 200
