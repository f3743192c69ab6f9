"""The retrain worker is killed in the middle of a run: its child dies with it, and another worker goes on."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import psutil
import pytest
from loop_fixtures import Loop
from role_fixtures import Roles

from engine.stages import retrain
from engine.store.tables.models import GateReport, ModelVersion, Promotion, Run

STEPS = 160


def reports(loop: Loop, run_id: uuid.UUID, attempt: int) -> list[dict]:
    """What the training of this attempt has said of itself so far."""
    path = Path(loop.folder) / "runs" / str(run_id) / f"attempt-{attempt}" / "progress.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_checkpoint_and_ends_as_one_champion(loop: Loop, roles: Roles) -> None:
    loop.labelled_drives(range(20, 32))
    loop.labelled_drives(range(100, 108), "golden")
    loop.freeze_golden()
    worker = roles.start("retraining")
    roles.start("gating")
    with loop.database.unit() as unit:
        retrain.request(
            unit,
            loop.line_id,
            target_heads=["road"],
            seed=1,
            overrides={"steps": STEPS, "checkpoint_every": 10},
        )
        unit.commit()
    roles.wait(lambda: loop.count(Run) == 1, 60)
    (run,) = loop.all(Run)
    checkpoints = lambda: list(loop.folder.glob(f"runs/{run.id}/attempt-1/checkpoint-*.pt.sha256"))  # noqa: E731
    roles.wait(checkpoints, 60, every_s=0.01)
    trainer = psutil.Process(reports(loop, run.id, 1)[0]["pid"])
    assert trainer.is_running()
    roles.kill(worker)
    began = time.monotonic()
    roles.wait(lambda: not trainer.is_running() or trainer.status() == psutil.STATUS_ZOMBIE, 5, every_s=0.01)
    died_after = time.monotonic() - began
    reached = reports(loop, run.id, 1)[-1]["step"]
    assert 10 <= reached < STEPS
    assert loop.count(ModelVersion) == 0

    roles.start("retraining")
    second: list[dict] = []

    def goes_on() -> bool:
        second[:] = reports(loop, run.id, 2)[:1] or second
        return bool(second)

    roles.wait(goes_on, 60, every_s=0.01)
    assert 10 <= second[0]["step"] <= reached
    roles.wait(lambda: loop.line().champion_id, 90)
    print(
        f"killed at step {reached} of {STEPS}, its child died within {died_after:.2f} s, went on at {second[0]['step']}"
    )
    (model,) = loop.all(ModelVersion)
    assert model.run_id == run.id
    assert loop.run(run.id).state == "finished"
    assert loop.line().champion_id == model.id
    assert (loop.count(GateReport), loop.count(Promotion)) == (1, 1)
    (job,) = loop.jobs("train")
    assert (job.state, job.attempt) == ("done", 2)
    assert not (loop.folder / "runs" / str(run.id)).exists()
