"""The record that judgements are made of, and the groups of runs that noise is measured on."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from loop_fixtures import Loop

from engine.ports import TrainedModel
from engine.store.blobs import register
from engine.store.evidence import evidence_of, pack, repeats, unpack
from engine.store.tables.metadata import new_id
from engine.store.tables.models import GoldenEvidence

Weights = Callable[..., TrainedModel]


@pytest.fixture
def golden(loop: Loop) -> uuid.UUID:
    loop.labelled_drives([1])
    loop.labelled_drives([100], "golden")
    return loop.freeze_golden().id


def looked_at(loop: Loop, trained: Weights, golden: uuid.UUID, run_id: uuid.UUID, road: float) -> uuid.UUID:
    model = loop.register(trained(0), run_id=run_id)
    blob = loop.blobs.put(pack({}))
    with loop.database.unit() as unit:
        row = register(unit.session, loop.project_id, blob, "application/zlib").id
        unit.session.add(
            GoldenEvidence(
                id=new_id(),
                project_id=loop.project_id,
                model_version_id=model,
                golden_set_id=golden,
                weights_sha256="w",
                statistics_blob_id=row,
                predictions_blob_id=row,
                metrics={"road": road},
            )
        )
        unit.commit()
    return model


def groups(loop: Loop, golden: uuid.UUID) -> list[dict[str, dict[str, float]]]:
    with loop.database.read() as session:
        return repeats(session, loop.line_id, golden)


def test_statistics_come_back_as_they_were() -> None:
    statistics = {"road": {"s": {"intersection": [0.1, 1e300], "missing": [0.0]}}}
    assert unpack(pack(statistics)) == statistics


def test_runs_that_differ_in_their_seed_alone_are_one_group(loop: Loop, golden: uuid.UUID, trained: Weights) -> None:
    frozen = loop.freeze().id
    same = [loop.start_run(frozen, seed=seed, purpose=purpose) for seed, purpose in ((1, "challenger"), (2, "noise"))]
    longer = loop.start_run(frozen, seed=3, overrides={"steps": 9})
    again = loop.start_run(frozen, seed=2, purpose="noise")  # the same seed again is no other draw
    models = [
        looked_at(loop, trained, golden, run, road)
        for run, road in zip([*same, longer, again], (1, 2, 3, 4), strict=True)
    ]
    assert groups(loop, golden) == [{str(models[0]): {"road": 1}, str(models[1]): {"road": 2}}]
    (clip,) = loop.labelled_drives([2])
    loop.label(clip, frames=(1,))
    other_data = loop.freeze().id
    assert other_data != frozen
    looked_at(loop, trained, golden, loop.start_run(other_data, seed=8), 5)
    assert len(groups(loop, golden)) == 1


def test_evidence_is_found_by_model_and_golden_set(loop: Loop, golden: uuid.UUID, trained: Weights) -> None:
    model = looked_at(loop, trained, golden, loop.start_run(loop.freeze().id), 1)
    with loop.database.read() as session:
        found = evidence_of(session, model, golden)
        assert found is not None
        assert found.metrics == {"road": 1}
        assert evidence_of(session, model, uuid.uuid4()) is None
    assert groups(loop, golden) == []  # one run says nothing about noise
