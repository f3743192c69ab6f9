"""What the bridge makes of a label tool that fails, played by a server of our own: the real one can't be told to."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from engine.adapters.label_studio.client import LabelStudioBridge
from engine.domain.answers import Answer
from engine.domain.ontology import Head, Kind, Ontology
from engine.ports import LabelToolRefused, LabelToolUnavailable, TaskDraft

ONTOLOGY = Ontology("driving", 1, (Head("weather", Kind.CHOICE, ("clear", "fog")),))
DRAFT = TaskDraft("k1", "http://pictures.example/1.png", 64, 36, ["weather"], {})


class FailingTool:
    """Answers every call with one status and body, after a delay, and counts the calls."""

    def __init__(self) -> None:
        self.status, self.body, self.delay_s, self.calls = 500, b"", 0.0, 0
        tool = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                tool.calls += 1
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                time.sleep(tool.delay_s)
                self.send_response(tool.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(tool.body)))
                self.end_headers()
                self.wfile.write(tool.body)

            do_GET = do_POST = do_DELETE = answer  # noqa: N815  the names that http.server looks for

            def log_message(self, format: str, *args: Any) -> None:
                """Not into the test's output."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that hung up is what some tests are about."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def tool() -> Iterator[FailingTool]:
    failing = FailingTool()
    thread = threading.Thread(target=failing.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield failing
    failing.server.shutdown()
    thread.join()
    failing.server.server_close()


@pytest.fixture
def bridge(tool: FailingTool) -> Iterator[LabelStudioBridge]:
    made = LabelStudioBridge(tool.url, "0" * 40, "fleet", timeout_s=2)
    yield made
    made.close()


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503])
def test_a_failing_tool_is_unavailable_and_a_write_is_sent_once(
    tool: FailingTool, bridge: LabelStudioBridge, status: int
) -> None:
    tool.status, tool.body = status, b'{"detail": "try later"}'
    with pytest.raises(LabelToolUnavailable, match=f"{status} try later"):
        bridge.create_tasks(7, ONTOLOGY, [DRAFT])
    assert tool.calls == 1
    assert not bridge.ready()


def test_what_the_tool_refuses_is_said(tool: FailingTool, bridge: LabelStudioBridge) -> None:
    tool.status = 400
    tool.body = json.dumps({"detail": "Validation error", "validation_errors": {"data": ["image is missing"]}}).encode()
    with pytest.raises(
        LabelToolRefused, match=r"making 1 tasks in project 7: 400 Validation error; data: .*image is missing"
    ):
        bridge.create_tasks(7, ONTOLOGY, [DRAFT])
    tool.status, tool.body = 401, b'{"detail": "Invalid token."}'
    with pytest.raises(LabelToolRefused, match="Invalid token"):
        bridge.ready()


def test_a_tool_that_does_not_answer_in_time_is_unavailable(tool: FailingTool) -> None:
    tool.status, tool.body, tool.delay_s = 201, b"{}", 1.0
    hasty = LabelStudioBridge(tool.url, "0" * 40, "fleet", timeout_s=0.2)
    started = time.monotonic()
    with pytest.raises(LabelToolUnavailable, match="ReadTimeout"):
        hasty.create_tasks(7, ONTOLOGY, [DRAFT])
    assert time.monotonic() - started < 1
    assert tool.calls == 1
    hasty.close()


@pytest.mark.parametrize("body", [b"<html>proxy</html>", b"[]", b'{"tasks": 3}'])
def test_an_answer_that_is_not_the_tools_is_unavailable(
    tool: FailingTool, bridge: LabelStudioBridge, body: bytes
) -> None:
    tool.status, tool.body = 200, body
    with pytest.raises(LabelToolUnavailable, match="reading the tasks of project 7"):
        bridge.tasks_by_key(7, ["k1"])


def test_no_tool_at_all_is_unavailable() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    nowhere = LabelStudioBridge(f"http://127.0.0.1:{port}", "0" * 40, "fleet")
    assert not nowhere.ready()
    with pytest.raises(LabelToolUnavailable, match="ConnectError"):
        nowhere.delete_tasks([1])
    nowhere.close()


def test_a_task_gone_already_is_no_error(tool: FailingTool, bridge: LabelStudioBridge) -> None:
    tool.status, tool.body = 404, b'{"detail": "No Task matches the given query."}'
    bridge.delete_tasks([1, 2])
    assert tool.calls == 2


def test_drafts_that_cant_be_shown_are_refused_before_any_call(tool: FailingTool, bridge: LabelStudioBridge) -> None:
    wrong = Answer(Kind.CHOICE, {"choice": "snow"})
    for draft in (
        TaskDraft("k1", "http://pictures.example/1.png", 64, 36, ["depth"], {}),
        TaskDraft("k1", "http://pictures.example/1.png", 64, 36, ["weather"], {"weather": wrong}),
    ):
        with pytest.raises(LabelToolRefused, match="k1"):
            bridge.create_tasks(7, ONTOLOGY, [draft])
    bridge.create_tasks(7, ONTOLOGY, [])
    assert tool.calls == 0
