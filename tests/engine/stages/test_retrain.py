"""A retraining freezes what is labelled now and starts its runs, each with its seed on record."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from loop_fixtures import Loop

from engine.domain.ontology import OntologyError
from engine.domain.refusals import Invalid
from engine.jobs.ledger import LeaseLost
from engine.stages import retrain
from engine.stages.freeze import NothingToFreeze
from engine.store.tables.labels import DatasetVersion
from engine.store.tables.models import Run


def ask(loop: Loop, **request: Any) -> uuid.UUID:
    with loop.database.unit() as unit:
        job = retrain.request(unit, loop.line_id, target_heads=request.pop("target_heads", ["light"]), **request)
        unit.commit()
    return job


def test_it_starts_a_challenger_and_repeats_that_differ_in_their_seed_alone(loop: Loop) -> None:
    loop.labelled_drives([1])
    ask(loop, noise_seeds=(7, 8), overrides={"steps": 3})
    frozen, run_ids = retrain.retrain(loop.database, loop.blobs, loop.reader, loop.claim("freeze"))
    runs = [loop.run(run_id) for run_id in run_ids]
    assert [(run.purpose, run.seed) for run in runs] == [("challenger", 0), ("noise", 7), ("noise", 8)]
    assert {run.dataset_version_id for run in runs} == {frozen.id}
    assert all(run.plan == runs[0].plan for run in runs)
    assert all(run.target_heads == ["light"] for run in runs)
    assert runs[0].plan["steps"] == 3
    assert {job.subject_id for job in loop.jobs("train", "due")} == set(run_ids)
    assert [job.state for job in loop.jobs("freeze")] == ["done"]


def test_without_a_seed_every_retraining_gets_another_one_and_the_same_labels_the_same_dataset(loop: Loop) -> None:
    loop.labelled_drives([1])
    for _ in range(2):
        ask(loop)
        retrain.retrain(loop.database, loop.blobs, loop.reader, loop.claim("freeze"))
    ask(loop, seed=40)
    retrain.retrain(loop.database, loop.blobs, loop.reader, loop.claim("freeze"))
    assert [run.seed for run in loop.all(Run)] == [0, 1, 40]
    assert loop.count(DatasetVersion) == 1


def test_what_can_not_be_trained_is_refused_when_it_is_asked_for(loop: Loop) -> None:
    with pytest.raises(OntologyError, match="it has road, light"):
        ask(loop, target_heads=["lanes"])
    with pytest.raises(Invalid, match="start is 'cold'"):
        ask(loop, start="cold")
    assert loop.jobs("freeze") == []


def test_without_labels_it_is_refused_and_starts_nothing(loop: Loop) -> None:
    loop.add_clip(1)
    ask(loop)
    with pytest.raises(NothingToFreeze):
        retrain.retrain(loop.database, loop.blobs, loop.reader, loop.claim("freeze"))
    assert loop.count(Run) == 0


def test_a_worker_that_lost_its_lease_starts_nothing(loop: Loop) -> None:
    loop.labelled_drives([1])
    ask(loop)
    lease = loop.claim("freeze")
    other = loop.take_away(lease)
    with pytest.raises(LeaseLost):
        retrain.retrain(loop.database, loop.blobs, loop.reader, lease)
    assert loop.count(Run) == 0
    _, runs = retrain.retrain(loop.database, loop.blobs, loop.reader, other)
    assert len(runs) == loop.count(Run) == 1
