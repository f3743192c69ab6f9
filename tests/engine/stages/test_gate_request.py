"""What a model is to be better at is declared once: by its run, or by the first judgement that names it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from loop_fixtures import Loop

from engine.domain.refusals import Conflict
from engine.ports import TrainedModel
from engine.stages.gate_request import JudgeRequest, request_judgement
from engine.store.tables.models import GateReport

Weights = Callable[..., TrainedModel]


@pytest.fixture
def model(loop: Loop, trained: Weights) -> uuid.UUID:
    """One that was made elsewhere."""
    loop.labelled_drives([100], "golden")
    loop.freeze_golden()
    return loop.register(trained(0))


def ask(loop: Loop, model: uuid.UUID, *heads: str) -> list[str]:
    """The target heads of the job that this makes due."""
    with loop.database.unit() as unit:
        job_id = request_judgement(unit, loop.project_id, JudgeRequest(model, target_heads=heads), "Ada")
        unit.commit()
    (job,) = [job for job in loop.jobs("judge") if job.id == job_id]
    return list(job.payload["target_heads"])


def test_the_first_judgement_that_names_target_heads_declares_them(loop: Loop, model: uuid.UUID) -> None:
    assert ask(loop, model) == []
    assert ask(loop, model, "light", "road") == ["light", "road"]
    for others in (["light"], ["road"]):
        with pytest.raises(Conflict, match="from an earlier judgement: light, road") as refused:
            ask(loop, model, *others)
        assert refused.value.code == "targets-declared"
    assert ask(loop, model, "road", "light") == ["light", "road"]
    assert ask(loop, model) == ["light", "road"]
    assert len(loop.jobs("judge")) == 4


def test_a_report_declares_them_too(loop: Loop, model: uuid.UUID, trained: Weights) -> None:
    """Whatever became of the job that asked for it."""
    golden = loop.freeze_golden().id
    loop.pass_report(model, golden)
    assert loop.all(GateReport)[0].target_heads == ["road"]
    with pytest.raises(Conflict, match="earlier judgement: road"):
        ask(loop, model, "light")
    assert ask(loop, model) == ["road"]
    another = loop.register(trained(0))
    assert ask(loop, another, "light") == ["light"]  # each version has its own


def test_of_a_run_they_are_what_it_declared(loop: Loop, model: uuid.UUID, trained: Weights) -> None:
    loop.labelled_drives([1])
    ours = loop.register(trained(0), run_id=loop.start_run(loop.freeze().id, target_heads=["light"]))
    with pytest.raises(Conflict, match="from its run: light"):
        ask(loop, ours, "road")
    assert ask(loop, ours) == ["light"]


def test_of_first_judgements_at_once_one_declares(loop: Loop, model: uuid.UUID) -> None:
    def one(head: str) -> Any:
        try:
            return ask(loop, model, head)
        except Conflict as conflict:
            return conflict.code

    with ThreadPoolExecutor(6) as callers:
        outcomes = list(callers.map(one, ["light", "road"] * 3))
    declared = [outcome for outcome in outcomes if outcome != "targets-declared"]
    assert len(declared) == 3
    assert declared[0] in (["light"], ["road"])
    assert declared == [declared[0]] * 3
