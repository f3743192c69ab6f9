"""A vehicle is erased in the middle of a working loop: nothing of it is left anywhere, and the loop goes on."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from erasure_fixtures import Eraser, Traces
from labeling_fixtures import Tool, sign
from loop_fixtures import Loop
from road_scenes import HEIGHT, WIDTH
from sqlalchemy import text

from engine.adapters.label_studio.client import LabelStudioBridge
from engine.adapters.label_studio.results import to_results
from engine.domain.refusals import Gone
from engine.jobs import ledger
from engine.ports import Picture, Scorer, TaskDraft, TrainedModel
from engine.stages import curate
from engine.stages.accept import accept
from engine.stages.access import make_device
from engine.stages.collect import collect
from engine.stages.push import lock_name, push
from engine.stages.reconcile import reconcile
from engine.store.tables.labels import Annotation, Label, LabelTask, QueueItem
from engine.store.tables.models import GoldenEvidence, Score
from engine.store.tables.privacy import ErasedTask
from engine.store.tables.recordings import Blob, Clip, Frame, ShownPicture, Subject
from services.local.label_studio import DATABASE
from services.local.postgres import PostgresServer

pytestmark = [pytest.mark.label_studio, pytest.mark.slow]

Weights = Callable[..., TrainedModel]
VEHICLE = "WVW-ZZZ-0815"


class Blackened:
    """A redactor that hides the upper left corner of everything."""

    def redact(self, picture: Picture) -> Picture:
        rows = [
            picture.rgb[start : start + 3 * picture.width] for start in range(0, len(picture.rgb), 3 * picture.width)
        ]
        hidden = [bytes(24) + row[24:] if number < 8 else row for number, row in enumerate(rows)]
        return Picture(picture.pts, picture.width, picture.height, b"".join(hidden))


def take(loop: Loop, kind: str) -> ledger.Lease:
    ontology = loop.line().ontology_id
    loop.enqueue(kind, ontology)
    return loop.claim(kind)


def push_now(loop: Loop, tool: Tool) -> None:
    push(loop.database, loop.blobs, loop.reader, Blackened(), tool.bridge, sign, take(loop, "push"))


def collect_now(loop: Loop, tool: Tool) -> None:
    collect(loop.database, tool.bridge, take(loop, "collect"))
    while leases := ledger.claim(loop.database, "accept", "tester"):
        accept(loop.database, leases[0])


def tasks_in(loop: Loop, tool: Tool) -> dict[str, int]:
    return {task["data"]["key"]: task["id"] for task in tool.tasks(loop.ontology)}


@pytest.fixture
def working(loop: Loop, eraser: Eraser, tool: Tool, trained: Weights, scorer: Scorer) -> list[uuid.UUID]:
    """A loop in the middle of its work, this vehicle everywhere in it; the vehicle's clips."""
    golden = [loop.add_clip(7100, "golden", vehicle=VEHICLE), *loop.labelled_drives(range(100, 103), "golden")]
    loop.label(golden[0])
    frozen = loop.freeze_golden().id
    model = loop.register(trained(60))
    loop.judge(scorer, model, frozen)
    loop.crown(model, frozen)
    mine = [loop.add_clip(7001, number=number, vehicle=VEHICLE) for number in range(2)]
    mine.append(loop.add_clip(7002, vehicle=VEHICLE))
    for seed in (1, 2):
        loop.add_clip(seed)
    with loop.database.unit() as unit:
        make_device(unit, loop.project_id, "gateway", [VEHICLE], False, "tester")
        unit.commit()
    loop.score_pool(scorer)
    loop.select(loop.campaign(budget=12, batch_size=12, settings={"window_s": 0.1}))
    with loop.database.unit() as unit:
        for item in loop.all(QueueItem)[:4]:
            curate.prioritise(unit, loop.project_id, item.id, 7.0, "tester")
        unit.commit()
    push_now(loop, tool)
    truth = {str(task.id): task.subject_id for task in loop.all(LabelTask)}
    frames = {frame.id: frame for frame in loop.all(Frame)}
    # Half of what is open is answered; the rest waits for somebody.
    for key, number in list(tasks_in(loop, tool).items())[::2]:
        frame = frames[truth[key]]
        answers = loop.scenes[frame.clip_id].answers(frame.pts)
        said = {head: answers[head] for head in ("road", "light")}
        tool.annotate(number, to_results(loop.ontology, list(said), said, WIDTH, HEIGHT))
    collect_now(loop, tool)
    loop.label(mine[2])
    loop.start_run(loop.freeze().id)
    for frame in loop.all(Frame, Frame.clip_id.in_(mine)):
        eraser.copies.keep_picture(eraser.copies.picture(frame.id, 640, "Blackened"), b"a picture")
    return [*mine, golden[0]]


def owned(loop: Loop, clips: list[uuid.UUID], table: Any) -> int:
    subjects = {subject.id for subject in loop.all(Subject, Subject.clip_id.in_(clips))}
    return loop.count(table, table.subject_id.in_(subjects))


def in_the_tool(traces: Traces, server: PostgresServer) -> list[str]:
    """What Label Studio's own database still says."""
    return Traces({name for name in traces.names if len(name) > 11}, traces.data_dir).in_tables(server.url(DATABASE))


def test_nothing_is_left_and_the_loop_goes_on(
    loop: Loop,
    eraser: Eraser,
    tool: Tool,
    working: list[uuid.UUID],
    scorer: Scorer,
    trained: Weights,
    database_url: str,
    postgres_server: PostgresServer,
) -> None:
    traces = eraser.traces(VEHICLE)
    before = {name for name in traces.names if any(name in row for row in in_the_tool(traces, postgres_server))}
    assert before, "the tool knows of it"
    assert owned(loop, working, QueueItem) > 2
    assert owned(loop, working, LabelTask) > 2
    assert loop.count(ShownPicture) == loop.count(LabelTask)
    assert loop.count(Annotation) > 3
    expected = {
        "queue_items": owned(loop, working, QueueItem),
        "label_tasks": owned(loop, working, LabelTask),
        "tool_tasks": owned(loop, working, LabelTask),
        "labels": owned(loop, working, Label),
        "scores": owned(loop, working, Score),
        "clips": 4,
        "drives": 3,
        "vehicles": 1,
        "golden_rows": 4,
        "run_folders": 0,
        "cached_pictures": loop.count(Frame, Frame.clip_id.in_(working[:3])),
    }
    erasure = eraser.erase(tool.bridge, vehicle=VEHICLE)
    assert erasure.receipt is not None
    removed = erasure.receipt["removed"]
    assert {kind: removed.get(kind, 0) for kind in expected} == expected
    assert [len(erasure.receipt["used_by"][kind]) for kind in ("dataset_versions", "golden_sets")] == [1, 1]
    assert traces.in_tables(database_url) == []
    assert traces.in_files() == []
    assert in_the_tool(traces, postgres_server) == []
    assert set(tasks_in(loop, tool)) == {str(task.id) for task in loop.all(LabelTask)}
    assert {path.name for path in (loop.folder / "blobs").rglob("*") if path.is_file()} == {
        str(blob.sha256) for blob in loop.all(Blob)
    }
    with pytest.raises(Gone):
        loop.add_clip(7001, vehicle=VEHICLE)

    # The rest goes on: the others are labelled, frozen and trained on, and models are judged on what is left.
    push_now(loop, tool)
    collect_now(loop, tool)
    reconcile(loop.database, tool.bridge, take(loop, "collect"), lock_name(loop.line().ontology_id))
    assert len(tasks_in(loop, tool)) == loop.count(LabelTask) > 0
    again = loop.freeze()
    assert again.created
    assert again.labels > 0
    (golden,) = {row.golden_set_id for row in loop.all(GoldenEvidence)}
    report = loop.judge(scorer, loop.register(trained(30)), golden)
    assert report is not None
    assert traces.in_tables(database_url) == []
    assert traces.in_files() == []


def test_the_tool_is_away_and_comes_back_and_the_eraser_dies_at_it(
    loop: Loop, eraser: Eraser, tool: Tool, working: list[uuid.UUID], database_url: str
) -> None:
    traces = eraser.traces(VEHICLE)
    count = owned(loop, working, LabelTask)
    keys = {str(task.id) for task in loop.all(LabelTask)}
    erasure = eraser.ask(vehicle=VEHICLE)
    away = LabelStudioBridge("http://127.0.0.1:9", tool.token, tool.prefix)
    waits = eraser.work(away)
    away.close()
    assert "127.0.0.1:9" in waits or "connect" in waits.lower()
    assert eraser.erasure(erasure).state == "running"
    assert "waiting" in str(eraser.erasure(erasure).step)
    # All of ours is gone meanwhile; what it has to look for in the tool is listed.
    assert loop.count(Clip, Clip.id.in_(working)) == 0
    assert loop.count(ErasedTask) == count
    assert traces.in_files() == []
    push_now(loop, tool)
    assert set(tasks_in(loop, tool)) == keys, "nothing else has deleted them, and nothing has made them again"
    eraser.settings = eraser.settings.with_values(
        label_studio_url=tool.url, label_studio_token=tool.token, label_studio_email=tool.prefix
    )
    for point in ("erase.after_delete", "erase.after_tool", "erase.before_record"):
        eraser.die_at(point)
    assert eraser.work(tool.bridge) == "done"
    assert eraser.removed(erasure)["tool_tasks"] == count
    assert traces.in_tables(database_url) == []

    # A call that had timed out lands only now.
    late = TaskDraft(min(keys - set(tasks_in(loop, tool))), sign("0" * 64), WIDTH, HEIGHT, ["road"], {})
    tool.bridge.create_tasks(tool.bridge.ensure_project(loop.ontology), loop.ontology, [late])
    assert late.key in tasks_in(loop, tool)
    done = reconcile(loop.database, tool.bridge, take(loop, "collect"), lock_name(loop.line().ontology_id))
    assert done.deleted == 1
    assert set(tasks_in(loop, tool)) == {str(task.id) for task in loop.all(LabelTask)}
    with loop.database.read() as session:
        assert session.scalar(text("SELECT count(*) FROM erased_tasks")) == 0
