"""A scorer as somebody else would write one: a small HTTP server that answers in the contract's form."""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.domain.answers import encode_runs

Answerer = Callable[[dict[str, Any]], Any]


def road_answers(request: dict[str, Any]) -> dict[str, Any]:
    """Knows the drawn roads by their colour, and day by its light."""
    answers = []
    for picture in request["pictures"]:
        with Image.open(io.BytesIO(base64.b64decode(picture["png_base64"]))) as image:
            cells = np.asarray(image.convert("RGB")).astype(float)
        assert cells.shape == (picture["height"], picture["width"], 3)
        road = (cells[..., 1] - cells[..., 0] < 12).astype(np.uint8)
        light = float(cells.mean())
        heads = {
            "road": {
                "value": {"size": list(road.shape), "runs": encode_runs(road.ravel().tolist())},
                "uncertainty": 0.1 + light / 1000,
            },
            "light": {
                "value": {"choice": "day" if light > 62 else "night", "score": 0.9},
                "uncertainty": abs(light - 62) / 100,
            },
        }
        answers.append({"heads": {head["name"]: heads[head["name"]] for head in request["heads"]}})
    return {"answers": answers}


class ScorerServer:
    """Answers with `answer`; `seen` are the requests. `replies` come first: (status, headers, body) each."""

    def __init__(self) -> None:
        self.answer: Answerer = road_answers
        self.seen: list[dict[str, Any]] = []
        self.replies: list[tuple[int, dict[str, str], bytes]] = []
        self.drip_s = 0.0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            """One request."""

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.seen.append({"path": self.path, "headers": dict(self.headers), **json.loads(body)})
                status, headers, content = 200, {}, b""
                if outer.replies:
                    status, headers, content = outer.replies.pop(0)
                else:
                    content = json.dumps(outer.answer(outer.seen[-1])).encode()
                try:
                    self.send_response(status)
                    for name, value in {"Content-Length": str(len(content)), **headers}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    if outer.drip_s:
                        for start in range(len(content)):
                            self.wfile.write(content[start : start + 1])
                            self.wfile.flush()
                            time.sleep(outer.drip_s)
                    else:
                        self.wfile.write(content)
                except (BrokenPipeError, ConnectionResetError):
                    pass

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/score"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


@pytest.fixture
def scorer_server() -> Iterator[ScorerServer]:
    server = ScorerServer()
    yield server
    server.stop()
