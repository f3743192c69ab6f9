"""A run becomes a model version with its lineage, or it is refused with the reason; and a killed one goes on."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loop_fixtures import Loop
from sqlalchemy import text

from engine.adapters.torch.trainer import TorchTrainer
from engine.domain.ontology import OntologyError
from engine.domain.refusals import Invalid
from engine.jobs.ledger import LeaseLost
from engine.ports import TrainedModel, Trainer
from engine.stages.register import make_line
from engine.stages.train import train
from engine.store.lines import artifact_of, model_files
from engine.store.manifests import content_sha256, read, write
from engine.store.tables.labels import DatasetLabel, DatasetVersion, GoldenSet
from engine.store.tables.metadata import new_id
from engine.store.tables.models import ModelVersion, Run
from engine.store.tables.recordings import Blob


class NobodyTrains:
    """A trainer of which nothing may be asked: what must not be trained on must not even be laid out."""

    def train(self, *arguments: object) -> None:
        raise AssertionError("the trainer was asked")


def run_folder(loop: Loop, run_id: uuid.UUID) -> Path:
    return loop.folder / "runs" / str(run_id)


def add_dataset(loop: Loop, manifest_blob_id: uuid.UUID, sha256: str) -> uuid.UUID:
    """A dataset version with this manifest, written past `freeze`."""
    with loop.database.unit() as unit:
        version = DatasetVersion(
            id=new_id(),
            project_id=loop.project_id,
            line_id=loop.line_id,
            number=1000,
            ontology_id=loop.line().ontology_id,
            content_sha256=sha256,
            header={},
            manifest_blob_id=manifest_blob_id,
            counts={},
        )
        unit.session.add(version)
        unit.commit()
    return version.id


@pytest.mark.slow
def test_a_run_becomes_a_model_version_with_its_lineage(loop: Loop, trainer: Trainer) -> None:
    loop.labelled_drives([1, 2])
    loop.labelled_drives([3], "golden")
    frozen, golden = loop.freeze(), loop.freeze_golden()
    run_id = loop.start_run(frozen.id, seed=5)
    assert loop.run(run_id).state == "due"
    model_id = loop.train(trainer)
    assert model_id is not None
    run, model = loop.run(run_id), loop.model(model_id)
    assert (run.state, run.seed, run.start, run.target_heads) == ("finished", 5, "scratch", ["road"])
    assert run.metrics["steps"] == run.progress["step"] == 4
    assert run.started_at is not None
    assert run.finished_at is not None
    assert run.finished_at > run.started_at
    assert (model.number, model.origin, model.run_id, model.heads) == (1, "trained", run_id, ["road", "light"])
    with loop.database.read() as session:
        artifact = artifact_of(session, model_id)
        files = model_files(session, loop.blobs, model_id)
        (blob,) = loop.all(Blob, Blob.id == artifact.blob_id)
    assert artifact.digest == model.weights_sha256 == blob.sha256
    assert [head["name"] for head in files.config["heads"]] == ["road", "light"]
    assert loop.count(DatasetLabel, DatasetLabel.dataset_version_id == run.dataset_version_id) == 8
    (judge,) = loop.jobs("judge", "due")  # it is looked at next, on the newest golden set
    assert (judge.subject_id, judge.payload["golden_set_id"]) == (model_id, str(golden.id))
    assert [job.state for job in loop.jobs("train")] == ["done"]
    assert not run_folder(loop, run_id).exists()


@pytest.mark.slow
def test_a_refused_run_says_why_and_makes_no_model(loop: Loop, trainer: Trainer) -> None:
    loop.label(loop.add_clip(1), heads=["road"])  # and nothing for the head "light"
    run_id = loop.start_run(loop.freeze().id)
    assert loop.train(trainer) is None
    run = loop.run(run_id)
    assert run.state == "refused"
    assert "'light' has no labelled sample" in str(run.failure)
    assert loop.count(ModelVersion) == 0
    assert [job.state for job in loop.jobs("train")] == ["done"]
    assert loop.jobs("judge") == []


@pytest.mark.slow
def test_a_run_that_lost_its_lease_writes_nothing_and_its_next_attempt_goes_on_from_its_checkpoint(loop: Loop) -> None:
    loop.labelled_drives([1, 2])
    run_id = loop.start_run(loop.freeze().id, overrides={"steps": 150, "checkpoint_every": 4})
    lease = loop.claim("train")
    trainer = TorchTrainer(beat_every_s=0.1, poll_every_s=0.02)
    raised: list[BaseException] = []

    def first() -> None:
        try:
            loop.train(trainer, lease)
        except LeaseLost as lost:
            raised.append(lost)

    thread = threading.Thread(target=first)
    thread.start()
    deadline = time.monotonic() + 60
    while not list(run_folder(loop, run_id).glob("attempt-1/checkpoint-*.pt")):
        assert time.monotonic() < deadline, "the first attempt wrote no checkpoint"
        time.sleep(0.02)
    second = loop.take_away(lease)
    thread.join(30)
    assert len(raised) == 1
    assert loop.run(run_id).state == "running"
    assert loop.count(ModelVersion) == 0
    assert second.attempt == 2
    began: list[int] = []

    class Watched(TorchTrainer):
        """Looks at the folder before the stage takes it away."""

        def train(self, folder: Path, *arguments: Any) -> TrainedModel:
            trained = super().train(folder, *arguments)
            reports = (folder / "attempt-2" / "progress.jsonl").read_text().splitlines()
            began.append(json.loads(reports[0])["step"])
            return trained

    assert loop.train(Watched(), second) is not None
    assert 0 < began[0] < 150
    assert loop.count(ModelVersion) == 1


def test_golden_is_not_trained_on_whatever_the_manifest_says(loop: Loop) -> None:
    loop.labelled_drives([1])
    loop.labelled_drives([3], "golden")
    loop.freeze_golden()
    (golden,) = loop.all(GoldenSet)
    (blob,) = loop.all(Blob, Blob.id == golden.manifest_blob_id)
    _, rows = read(loop.blobs.read(str(blob.sha256)))
    lie = {"line": "roads-0", "split": "pool"}
    stored = loop.blobs.put(write(lie, rows))
    with loop.database.unit() as unit:
        forged = Blob(
            id=new_id(), project_id=loop.project_id, sha256=stored.sha256, size_bytes=stored.size, media_type="x"
        )
        unit.session.add(forged)
        unit.commit()
    for manifest, sha256 in ((blob.id, golden.content_sha256), (forged.id, content_sha256(lie, rows))):
        with loop.database.unit() as unit:
            unit.session.execute(text("UPDATE dataset_versions SET number = number + 1"))
            unit.commit()
        run_id = loop.start_run(add_dataset(loop, manifest, sha256))
        assert loop.train(NobodyTrains()) is None  # type: ignore[arg-type]
        assert (loop.run(run_id).state, "2 golden subjects" in str(loop.run(run_id).failure)) == ("refused", True)
    assert loop.count(ModelVersion) == 0


def test_a_manifest_that_was_changed_is_not_trained_on(loop: Loop) -> None:
    loop.labelled_drives([1])
    frozen = loop.freeze()
    with loop.database.unit() as unit:
        unit.session.execute(text("UPDATE dataset_versions SET content_sha256 = 'other'"))
        unit.commit()
    loop.start_run(frozen.id)
    with pytest.raises(ValueError, match="does not hash"):
        loop.train(NobodyTrains())  # type: ignore[arg-type]


@pytest.mark.parametrize("state", ["finished", "refused", "cancelled"])
def test_a_run_that_is_over_is_not_trained_again(loop: Loop, state: str) -> None:
    loop.labelled_drives([1])
    run_id = loop.start_run(loop.freeze().id)
    with loop.database.unit() as unit:
        unit.session.execute(text("UPDATE runs SET state = :state"), {"state": state})
        unit.commit()
    assert loop.train(NobodyTrains()) is None  # type: ignore[arg-type]
    assert loop.run(run_id).state == state
    assert [job.state for job in loop.jobs("train")] == ["done"]


def test_a_run_declares_targets_that_there_are_and_starts_warm_only_from_a_champion(loop: Loop) -> None:
    loop.labelled_drives([1])
    frozen = loop.freeze()
    with pytest.raises(OntologyError, match="has no head 'lanes'"):
        loop.start_run(frozen.id, target_heads=["lanes"])
    run = loop.run(loop.start_run(frozen.id, start="warm"))
    assert (run.start, run.initial_model_id) == ("scratch", None)
    assert run.plan["steps"] == 4
    assert len(loop.jobs("train")) == 1


def test_a_lease_that_was_lost_before_the_training_began_starts_none(loop: Loop) -> None:
    loop.labelled_drives([1])
    run_id = loop.start_run(loop.freeze().id)
    lease = loop.claim("train")
    loop.take_away(lease)
    with pytest.raises(LeaseLost):
        train(loop.database, loop.blobs, NobodyTrains(), lease, loop.folder)  # type: ignore[arg-type]
    assert loop.run(run_id).state == "due"


class Crashes:
    """A trainer whose child dies every time."""

    def train(self, *arguments: object) -> None:
        raise RuntimeError("the child ended with code -9")


@pytest.mark.parametrize(("attempt", "state"), [(1, "running"), (8, "refused")])
def test_a_run_is_over_when_its_job_has_no_attempt_left(loop: Loop, attempt: int, state: str) -> None:
    loop.labelled_drives([1])
    run_id = loop.start_run(loop.freeze().id)
    with loop.database.unit() as unit:
        unit.session.execute(text("UPDATE jobs SET attempt = :before WHERE kind = 'train'"), {"before": attempt - 1})
        unit.commit()
    with pytest.raises(RuntimeError, match="code -9"):
        loop.train(Crashes())  # type: ignore[arg-type]
    run = loop.run(run_id)
    assert run.state == state
    assert ("code -9" in str(run.failure)) == (state == "refused")


@pytest.mark.parametrize("training", [{"command": ["sh", "-c", "id"]}, {"trainer": ["sh", "-c", "id"]}])
def test_settings_name_a_trainer_and_bring_no_command_along(loop: Loop, training: dict[str, Any]) -> None:
    loop.labelled_drives([1])
    frozen = loop.freeze()
    with pytest.raises(Invalid, match="can't bring a command along"):
        loop.start_run(frozen.id, overrides=training)
    with loop.database.unit() as unit, pytest.raises(Invalid, match="can't bring a command along"):
        make_line(unit, loop.project_id, "mine", "roads", 1, {"training": training}, "tester")
    assert loop.count(Run) == 0


def test_a_run_starts_from_scratch_where_its_trainer_can_not_start_from_the_champion(
    loop: Loop, trained: Callable[..., TrainedModel]
) -> None:
    loop.labelled_drives([1])
    loop.labelled_drives([3], "golden")
    frozen, golden = loop.freeze(), loop.freeze_golden()
    loop.crown(loop.register(trained(0)), golden.id)
    assert loop.run(loop.start_run(frozen.id, seed=1)).start == "warm"
    with loop.database.unit() as unit:
        unit.session.execute(text("UPDATE model_artifacts SET format = 'onnx'"))
        unit.commit()
    ours, theirs = loop.start_run(frozen.id, seed=2), loop.start_run(frozen.id, seed=3, overrides={"trainer": "yolo"})
    assert (loop.run(ours).start, loop.run(ours).initial_model_id) == ("scratch", None)
    assert (loop.run(theirs).start, loop.run(theirs).trainer) == ("warm", "yolo")
