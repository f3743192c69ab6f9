"""Label Studio is away for the whole of a turn: nothing is lost or doubled, and the queue moves once it is back."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from labeling_fixtures import ANSWERS, PERSON_HEADS, Desk, LabelingWorkers, Tool, eventually
from sqlalchemy import select

from engine.store.tables.work import Job

pytestmark = [pytest.mark.label_studio, pytest.mark.slow]

DOWN_S = 12.0


class Gate:
    """A port in front of a server that can be shut: then connections are refused, and those that were open are cut."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (str(parts.hostname), int(parts.port or 80))
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._address = probe.getsockname()
        self.url = f"http://127.0.0.1:{self._address[1]}"
        self._shut = threading.Event()
        self._threads: list[threading.Thread] = []

    def open(self) -> None:
        self._shut = threading.Event()
        server = socket.create_server(self._address)
        thread = threading.Thread(target=self._serve, args=(server, self._shut), daemon=True)
        thread.start()
        self._threads.append(thread)

    def shut(self) -> None:
        self._shut.set()
        for thread in self._threads:
            thread.join(10)
        self._threads.clear()

    def _serve(self, server: socket.socket, shut: threading.Event) -> None:
        pairs: dict[socket.socket, socket.socket] = {}
        with selectors.DefaultSelector() as selector, server:
            selector.register(server, selectors.EVENT_READ)
            while not shut.is_set():
                for key, _ in selector.select(0.1):
                    if key.fileobj is server:
                        near, _ = server.accept()
                        far = socket.create_connection(self._target)
                        pairs[near], pairs[far] = far, near
                        selector.register(near, selectors.EVENT_READ)
                        selector.register(far, selectors.EVENT_READ)
                        continue
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    if source not in pairs:
                        continue
                    try:
                        data = source.recv(65536)
                        if data:
                            pairs[source].sendall(data)
                            continue
                    except OSError:
                        pass
                    other = pairs.pop(source)
                    pairs.pop(other, None)
                    for end in (source, other):
                        selector.unregister(end)
                        end.close()
            for end in pairs:
                end.close()


@pytest.fixture
def gate(label_studio: Tool) -> Iterator[Gate]:
    made = Gate(label_studio.url)
    yield made
    made.shut()


def test_the_queue_moves_soon_after_label_studio_is_back(
    desk: Desk, shared_tool: Tool, gate: Gate, labeling_workers: LabelingWorkers
) -> None:
    campaign = desk.campaign()
    desk.queue(campaign, range(3))
    gate.open()
    labeling_workers.start(gate.url, shared_tool.token)
    eventually(lambda: len(desk.tasks("open")) == 3, 60, "the first are open")
    gate.shut()
    # The whole of a turn without it: more is chosen, people go on with what they have, a second worker comes.
    desk.queue(campaign, range(3, 9))
    labeling_workers.start(gate.url, shared_tool.token)
    for task in shared_tool.tasks(desk.ontology):
        shared_tool.say(task["id"], desk.ontology, ANSWERS)
    time.sleep(DOWN_S)
    assert desk.labels() == []
    assert Counter(item.state for item in desk.items()) == {"open": 3, "queued": 6}
    gate.open()
    back = time.monotonic()
    eventually(lambda: len(desk.tasks("open", "done")) > 3, 15, "the queue moves")
    moved = time.monotonic() - back
    eventually(lambda: len(desk.labels()) == 3 * len(PERSON_HEADS), 30, "what people said is accepted")
    eventually(lambda: Counter(i.state for i in desk.items()) == {"labelled": 3, "open": 6}, 30, "all are open")
    settled = time.monotonic() - back
    print(f"away for {DOWN_S:.0f} s; the queue moved after {moved:.1f} s, all settled after {settled:.1f} s")
    there = Counter(task["data"]["key"] for task in shared_tool.tasks(desk.ontology))
    assert there == {str(task.id): 1 for task in desk.tasks("open", "done")}
    assert len(there) == 9
    with desk.read() as session:
        assert session.scalars(select(Job.id).where(Job.state == "dead")).all() == []
        assert max(session.scalars(select(Job.attempt))) == 1, "an outage spends no attempts"
