"""A real API on a free port, over a real database, and callers for it."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
import pytest
import uvicorn
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from engine.adapters.blobs import LocalBlobStore
from engine.stages.access import make_device, make_token
from engine.store.database import connect
from engine.store.projects import ensure_default
from engine.store.unit_of_work import Database
from services.api.app import make_app
from services.settings import Settings
from services.wiring import Undispatched

START_NS = 1_790_000_000_000_000_000


@dataclass
class Api:
    """A running API and ways to call it."""

    url: str
    settings: Settings
    engine: Engine
    project_id: Any
    clients: list[httpx.Client] = field(default_factory=list)

    def client(self, secret: str | None) -> httpx.Client:
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=30, trust_env=False)
        self.clients.append(client)
        return client

    def token(self, *scopes: str, name: str = "tester") -> httpx.Client:
        database = Database(self.engine, Undispatched())
        with database.unit() as unit:
            _, secret = make_token(unit, self.project_id, f"{name}-{'-'.join(scopes)}", scopes, None, "test")
            unit.commit()
        return self.client(secret)

    def device(self, *vehicles: str) -> httpx.Client:
        database = Database(self.engine, Undispatched())
        with database.unit() as unit:
            name = "-".join(vehicles) or "gateway"
            _, secret = make_device(unit, self.project_id, name, vehicles, not vehicles, "test")
            unit.commit()
        return self.client(secret)

    def post_clip(
        self,
        client: httpx.Client,
        document: dict[str, Any] | str,
        files: dict[str, bytes],
        headers: dict[str, str] | None = None,
    ) -> httpx.Response:
        """Send a clip: the manifest last, as a sender that hashes while it sends would, and with hostile file names."""
        text = document if isinstance(document, str) else json.dumps(document)
        parts: list[tuple[str, Any]] = [
            (f"stream:{name}", ("../../etc/passwd", content, "video/mp4")) for name, content in files.items()
        ]
        parts.append(("manifest", (None, text, "application/json")))
        return client.post("/v1/clips", files=parts, headers=headers)

    def session(self) -> Session:
        return Session(self.engine)

    @property
    def blob_root(self) -> Path:
        return Path(self.settings.blobs)

    @property
    def blobs(self) -> LocalBlobStore:
        return LocalBlobStore(self.blob_root)

    def blob_bytes(self, sha256: str) -> bytes:
        return self.blobs.read(sha256)

    def blob_files(self) -> list[Path]:
        """Every file that lies in the blob store, the unfinished ones included."""
        return [path for path in self.blob_root.rglob("*") if path.is_file()]


@pytest.fixture
def small_limits() -> dict[str, Any]:
    """Settings in which the API of a file's tests is to differ; a file that wants some has a fixture of this name."""
    return {}


@pytest.fixture
def api(database_url: str, data_dir: Path, small_limits: dict[str, Any]) -> Iterator[Api]:
    settings = Settings(
        data_dir=data_dir, database_url=database_url, signing_secret="a secret of the tests", **small_limits
    )
    server = uvicorn.Server(uvicorn.Config(make_app(settings), host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started:
        assert thread.is_alive(), "the API did not start"
        assert time.monotonic() < deadline, "the API took too long to start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    engine = connect(database_url)
    with Session(engine) as session:
        project_id = ensure_default(session).id
        session.commit()
    running = Api(f"http://127.0.0.1:{port}", settings, engine, project_id)
    try:
        yield running
    finally:
        for client in running.clients:
            client.close()
        server.should_exit = True
        thread.join(20)
        engine.dispose()
        assert not thread.is_alive(), "the API did not stop"


@pytest.fixture(scope="session")
def make_video() -> Callable[..., bytes]:
    """Makes a small H.264 MP4; another seed gives other bytes."""

    def make(seed: int = 0, frames: int = 5, width: int = 64, height: int = 48) -> bytes:
        out = io.BytesIO()
        noise = np.random.default_rng(seed)
        with av.open(out, "w", format="mp4") as container:
            stream = container.add_stream("libx264", rate=10)
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            for _ in range(frames):
                picture = noise.integers(0, 255, (height, width, 3), dtype=np.uint8)
                for packet in stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")):
                    container.mux(packet)
            for packet in stream.encode():
                container.mux(packet)
        return out.getvalue()

    return make


@pytest.fixture(scope="session")
def video(make_video: Callable[..., bytes]) -> bytes:
    return make_video()


@pytest.fixture(scope="session")
def manifest() -> Callable[..., dict[str, Any]]:
    """Makes a whole manifest of a clip with one camera, with changes at its top level."""
    return _manifest


def _manifest(clip: str = "c-1", **changes: Any) -> dict[str, Any]:
    return {
        "vehicle": {"external_id": "sim-07", "platform": "sim"},
        "drive": {"external_id": "d-1"},
        "external_id": clip,
        "start_ns": START_NS,
        "clock_source": "gps",
        "streams": [
            {
                "name": "front",
                "calibration": {
                    "camera_model": "pinhole",
                    "intrinsics": {"fx": 50, "fy": 50, "cx": 32, "cy": 24},
                    "vehicle_from_sensor": [[0, 0, 1, 1.5], [-1, 0, 0, 0], [0, -1, 0, 1.4], [0, 0, 0, 1]],
                    "shutter": "global",
                },
            }
        ],
        "telemetry": [{"t_ns": START_NS, "speed_mps": 12.5, "yaw_rate_radps": 0.01}],
        "events": [{"t_ns": START_NS, "name": "hard_brake"}],
        "tags": {"weather": "fog"},
        "licence": "CC-BY-4.0",
        **changes,
    }


ONTOLOGY = {
    "name": "driving",
    "version": 1,
    "heads": [
        {"name": "objects", "kind": "boxes", "classes": ["car"]},
        {"name": "depth", "kind": "dense_scalar", "label_tool": "machine", "unit": "m"},
    ],
}


@pytest.fixture
def admin(api: Any) -> httpx.Client:
    return api.token("admin")


@pytest.fixture
def line(admin: httpx.Client) -> dict[str, Any]:
    assert admin.post("/v1/ontologies", json=ONTOLOGY).status_code == 201
    made = admin.post("/v1/lines", json={"name": "car", "ontology": {"name": "driving", "version": 1}})
    assert made.status_code == 201, made.text
    return made.json()
