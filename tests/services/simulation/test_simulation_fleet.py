"""The fleet's uplink, against a small engine over HTTP: replays, patience, refusals, and the labels' form."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from engine.domain.answers import Answer, check_answer
from services.simulation import drive as drives
from services.simulation.drive import plan_drives
from services.simulation.fleet import Fleet, PostedClip, with_lidar
from services.simulation.truth import driving_ontology
from services.uplink import ClipConflictError, UplinkError

ONTOLOGY = driving_ontology()
DRIVES = plan_drives(61, 3, "easy", clips=1)


class SmallEngine(ThreadingHTTPServer):
    """Takes clips and labels as the API's contract says, after answering `busy` first. Keeps what it took."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.busy: list[tuple[int, dict[str, str]]] = []
        self.clips: dict[str, dict[str, Any]] = {}
        self.imports: list[dict[str, Any]] = []
        self.calls: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: SmallEngine

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.calls.append(f"{self.path} {self.headers['Authorization']}")
        if self.server.busy:
            status, headers = self.server.busy.pop(0)
            self._answer(status, {}, headers)
        elif self.path == "/v1/clips":
            self._take_clip(body)
        else:
            self.server.imports.append(json.loads(body))
            self._answer(200, {})

    def _take_clip(self, body: bytes) -> None:
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        parts = {
            p.get_param("name", header="content-disposition"): p for p in BytesParser().parsebytes(head + body).walk()
        }
        manifest = json.loads(parts["manifest"].get_payload(decode=True))
        media = parts["stream:front"].get_payload(decode=True)
        known = self.server.clips.setdefault(
            manifest["external_id"], {"manifest": manifest, "media": media, "times": 0}
        )
        known["times"] += 1
        if known["manifest"] != manifest:
            self._answer(409, {"title": "another clip has this external id"})
        else:
            self._answer(202, {"id": f"id-{manifest['external_id']}", "created": known["times"] == 1})

    def _answer(self, status: int, document: Any, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: pytest shows what failed."""


@pytest.fixture
def engine() -> Iterator[SmallEngine]:
    server = SmallEngine()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def fleet(engine: SmallEngine, waits: list[float]) -> Iterator[Fleet]:
    with Fleet(engine.url, "device-key", token="label-token", sleep=waits.append) as fleet:
        yield fleet


def test_clips_are_posted_whole_and_once_more_is_a_replay(engine: SmallEngine, fleet: Fleet) -> None:
    posted = list(fleet.post_drives(DRIVES))
    assert [clip.id for clip in posted] == [f"id-{drive.clips[0].external_id}" for drive in DRIVES]
    assert not any(clip.replayed for clip in posted)
    assert all(clip.replayed for clip in fleet.post_drives(DRIVES))
    taken = engine.clips[DRIVES[1].clips[0].external_id]
    assert taken["media"] == drives.encode(DRIVES[1], DRIVES[1].clips[0])
    assert taken["manifest"] == drives.manifest(DRIVES[1], DRIVES[1].clips[0], taken["media"])
    assert set(engine.calls) == {"/v1/clips Bearer device-key"}


def test_busy_engine_is_waited_for_as_long_as_it_asks(engine: SmallEngine, fleet: Fleet, waits: list[float]) -> None:
    engine.busy = [(503, {}), (429, {"Retry-After": "7"}), (500, {})]
    posted = fleet.post_clip(DRIVES[0], DRIVES[0].clips[0])
    assert posted.id == "id-" + DRIVES[0].clips[0].external_id
    assert len(engine.calls) == 4
    assert len(waits) == 3
    assert waits[1] >= 7
    assert sum(waits) < 60


def test_patience_ends(engine: SmallEngine, fleet: Fleet) -> None:
    engine.busy = [(503, {})] * 20
    with pytest.raises(UplinkError, match="failed 6 times"):
        fleet.post_clip(DRIVES[0], DRIVES[0].clips[0])
    assert len(engine.calls) == 6


def test_another_clip_under_the_same_id_is_a_conflict(fleet: Fleet) -> None:
    fleet.post_clip(DRIVES[0], DRIVES[0].clips[0])
    with pytest.raises(ClipConflictError, match="another clip"):
        fleet.post_clip(DRIVES[0], DRIVES[0].clips[0], model_version="another")


def test_refusal_is_not_tried_again(engine: SmallEngine, fleet: Fleet) -> None:
    engine.busy = [(403, {})]
    with pytest.raises(UplinkError, match="403"):
        fleet.post_clip(DRIVES[0], DRIVES[0].clips[0])
    assert len(engine.calls) == 1


def test_unreachable_engine_is_an_error_after_all_attempts(waits: list[float]) -> None:
    with (
        Fleet("http://127.0.0.1:9", "device-key", sleep=waits.append, attempts=3) as fleet,
        pytest.raises(UplinkError, match="ConnectError"),
    ):
        fleet.post_clip(DRIVES[0], DRIVES[0].clips[0])
    assert len(waits) == 2


def test_labels_are_imported_as_the_contract_has_them(engine: SmallEngine, fleet: Fleet) -> None:
    posted = fleet.post_clip(DRIVES[0], DRIVES[0].clips[0])
    pts = posted.plan.pts[::3]
    fleet.import_depth(posted, pts, ONTOLOGY)
    fleet.import_truth(posted, pts[:1], ONTOLOGY, ["objects", "driveable"])
    sensor, simulator = engine.imports
    assert (sensor["source"], simulator["source"]) == ("sensor", "simulator")
    assert sensor["ontology"] == {"name": "driving", "version": 1}
    assert [label["pts"] for label in sensor["labels"]] == list(pts)
    for label in sensor["labels"] + simulator["labels"]:
        assert (label["clip"], label["stream"]) == (posted.id, "front")
        head = ONTOLOGY.head(label["head"])
        array = label["array_base64"] and base64.b64decode(label["array_base64"])
        check_answer(head, Answer(head.kind, label["value"], array))
    depth = np.load(io.BytesIO(base64.b64decode(sensor["labels"][0]["array_base64"])))
    assert depth.dtype == np.float16
    assert list(depth.shape) == sensor["labels"][0]["value"]["size"]
    assert engine.calls[-1] == "/v1/labels:import Bearer label-token"


def test_lidar_share_is_by_lot_and_repeats() -> None:
    planned = plan_drives(62, 30, "easy", clips=2)
    posted = [PostedClip(clip.external_id, drive, clip, False, 1) for drive in planned for clip in drive.clips]
    assert with_lidar(posted, 1.0, 1) == posted
    assert with_lidar(posted, 0.0, 1) == []
    some = with_lidar(posted, 0.5, 1)
    assert some == with_lidar(posted, 0.5, 1)
    assert 18 <= len(some) <= 42
    assert with_lidar(posted, 0.5, 2) != some
