"""Labeling workers die at every step of a push: each chosen frame has exactly one live task in the end."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from labeling_fixtures import Desk, LabelingWorkers, Tool, eventually

pytestmark = [pytest.mark.label_studio, pytest.mark.slow]

POINTS = ("push.after_intent", "push.after_post", "push.before_record")


def test_every_chosen_frame_has_one_live_task_wherever_a_worker_dies(
    desk: Desk, shared_tool: Tool, labeling_workers: LabelingWorkers
) -> None:
    campaign = desk.campaign()
    killed = 0
    start = time.monotonic()
    for place, point in enumerate(POINTS):
        desk.queue(campaign, range(4 * place, 4 * place + 4))
        worker = labeling_workers.start(shared_tool.url, shared_tool.token, failpoints=f"{point}=kill")
        eventually(lambda worker=worker: worker.exit_code is not None, 60, f"the worker dies at {point}")
        assert worker.exit_code == -9, worker.last_lines()
        killed += 1
        if place == 1:
            assert len(shared_tool.tasks(desk.ontology)) > len(desk.tasks("open")), "posted, and not recorded"
    labeling_workers.start(shared_tool.url, shared_tool.token)
    labeling_workers.start(shared_tool.url, shared_tool.token)
    eventually(lambda: len(desk.tasks("open")) == 12, 90, "all are open")
    time.sleep(6)  # another push and more come by
    there = Counter(task["data"]["key"] for task in shared_tool.tasks(desk.ontology))
    print(f"{killed} workers killed in pushes of 12 frames: {time.monotonic() - start:.1f} s, {len(there)} tasks")
    assert there == {str(task.id): 1 for task in desk.tasks("open")}
    assert len({task.subject_id for task in desk.tasks("open")}) == 12
    assert {item.state for item in desk.items()} == {"open"}
    assert desk.tasks("intended") == []
