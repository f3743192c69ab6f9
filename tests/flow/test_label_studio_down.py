"""Label Studio is away for the whole of a turn: nothing is lost or doubled, and the queue moves once it is back."""

from __future__ import annotations

import selectors
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

import numpy as np
import pytest
from labeling_fixtures import ANSWERS, PERSON_HEADS, Desk, LabelingWorkers, Tool, eventually
from sqlalchemy import select

from engine.stages.campaign import CampaignRequest, make_campaign, request_selection
from engine.store.tables.metadata import new_id
from engine.store.tables.models import EMBEDDING_DIMENSIONS, Embedding, EmbeddingSpace, ModelLine, Score, Scoring
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


def scored(desk: Desk) -> None:
    """What a selection needs: the model's scores of every frame, and their places in the line's space."""
    places = np.random.default_rng(4).normal(size=(len(desk.frames), EMBEDDING_DIMENSIONS))
    with desk.database.unit() as unit:
        session = unit.session
        space = EmbeddingSpace(id=new_id(), project_id=desk.project_id, model_version_id=desk.model_id)
        session.add(space)
        session.flush()
        scoring = session.scalars(select(Scoring)).one()
        for number, (frame, place) in enumerate(zip(desk.frames, places, strict=True)):
            unsure = number / len(desk.frames)
            session.add(
                Embedding(
                    space_id=space.id,
                    subject_id=frame,
                    project_id=desk.project_id,
                    vector=place / np.linalg.norm(place),
                )
            )
            session.add(
                Score(
                    scoring_id=scoring.id, subject_id=frame, project_id=desk.project_id, head=PERSON_HEADS[0],
                    raw=unsure, quantile=unsure,
                )
            )  # fmt: skip
        line = session.get_one(ModelLine, desk.line_id)
        line.embedding_space_id, line.selection_model_id = space.id, desk.model_id
        unit.commit()


def choose_batch(desk: Desk, size: int) -> uuid.UUID:
    """Make the selection of a new campaign's batch due, for the workers; returns its job."""
    asked = CampaignRequest("tail", "front", PERSON_HEADS, budget=size, batch_size=size, settings={"window_s": 0.01})
    with desk.database.unit() as unit:
        campaign = make_campaign(unit, desk.project_id, asked)
        job_id = request_selection(unit, desk.project_id, campaign.id)
        unit.commit()
    return job_id


def desk_job(desk: Desk, job_id: uuid.UUID) -> Job:
    with desk.read() as session:
        return session.get_one(Job, job_id)


def waiting(desk: Desk) -> set[str]:
    """The kinds of the jobs that are not over; a job that nobody tried yet shows as `untried`."""
    with desk.read() as session:
        jobs = session.scalars(select(Job).where(Job.state.in_(("due", "leased")))).all()
    return {job.kind if job.last_error else f"untried {job.kind}" for job in jobs}


def test_the_queue_moves_soon_after_label_studio_is_back(
    desk: Desk, shared_tool: Tool, gate: Gate, labeling_workers: LabelingWorkers
) -> None:
    scored(desk)
    desk.queue(desk.campaign(), range(3))
    gate.open()
    labeling_workers.start(gate.url, shared_tool.token)
    eventually(lambda: len(desk.tasks("open")) == 3, 60, "the first are open")
    gate.shut()
    # The whole of a turn without it: a batch is chosen, people go on with what they have, a second worker comes.
    down = time.monotonic()
    select_job = choose_batch(desk, 6)
    labeling_workers.start(gate.url, shared_tool.token)
    for task in shared_tool.tasks(desk.ontology):
        shared_tool.say(task["id"], desk.ontology, ANSWERS)
    eventually(lambda: desk_job(desk, select_job).state == "done", 30, "the batch is chosen")
    eventually(lambda: waiting(desk) == {"push", "collect"}, 30, "all that is left to do waits for the tool")
    while time.monotonic() - down < DOWN_S:  # and goes on to, however often it is tried
        assert Counter(item.state for item in desk.items()) == {"open": 3, "queued": 6}
        time.sleep(0.5)
    eventually(lambda: waiting(desk) == {"push", "collect"}, 5, "it waits still")
    assert desk.labels() == []
    away = time.monotonic() - down
    gate.open()
    back = time.monotonic()
    eventually(lambda: len(desk.tasks("open", "done")) > 3, 15, "the queue moves")
    moved = time.monotonic() - back
    eventually(lambda: len(desk.labels()) == 3 * len(PERSON_HEADS), 30, "what people said is accepted")
    eventually(lambda: Counter(i.state for i in desk.items()) == {"labelled": 3, "open": 6}, 30, "all are open")
    settled = time.monotonic() - back
    print(f"away for {away:.0f} s; the queue moved after {moved:.1f} s, all settled after {settled:.1f} s")
    there = Counter(task["data"]["key"] for task in shared_tool.tasks(desk.ontology))
    assert there == {str(task.id): 1 for task in desk.tasks("open", "done")}
    assert len(there) == 9
    with desk.read() as session:
        assert session.scalars(select(Job.id).where(Job.state == "dead")).all() == []
        assert max(session.scalars(select(Job.attempt))) == 1, "an outage spends no attempts"
