"""Everything of a vehicle, a drive or a clip goes, for good; what others still need stays, and nothing comes back."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from erasure_fixtures import Eraser
from loop_fixtures import Loop
from sqlalchemy import text

from engine.domain.refusals import Conflict, Gone, Invalid, NotFound
from engine.jobs import ledger
from engine.jobs.ledger import LeaseLost
from engine.ports import FrameScore, ModelFiles, Picture, Scorer, TrainedModel
from engine.stages.access import make_device
from engine.stages.pin import pin
from engine.store.blobs import sha256_of
from engine.store.manifests import content_sha256, held_sha256, read
from engine.store.tables.access import AuditEntry, DeviceKeyVehicle
from engine.store.tables.labels import DatasetVersion, GoldenSet, Label
from engine.store.tables.models import GoldenEvidence
from engine.store.tables.privacy import Erasure
from engine.store.tables.recordings import Blob, Clip, Drive, Frame, SplitGroup, Subject, Vehicle

Weights = Callable[..., TrainedModel]
VEHICLE = "WVW-0815"


def files(loop: Loop) -> set[str]:
    """The names of all files in the blob store, the unfinished ones too."""
    return {path.name for path in (loop.folder / "blobs").rglob("*") if path.is_file()}


def blobs(loop: Loop) -> set[str]:
    return {str(blob.sha256) for blob in loop.all(Blob)}


class Answering:
    """A scorer that is asked, and then something else happens before it answers."""

    def __init__(self, loop: Loop, meanwhile: Callable[[], object]) -> None:
        self._loop, self._meanwhile, self._heads = loop, meanwhile, [head.name for head in loop.ontology.heads]

    def score(self, model: ModelFiles, pictures: Sequence[Picture]) -> list[FrameScore]:
        self._meanwhile()
        self._meanwhile = lambda: None
        answers = next(iter(self._loop.scenes.values())).answers(0)
        told = {head: answers[head] for head in self._heads}
        return [FrameScore(told, dict.fromkeys(told, 0.5), (1.0, *[0.0] * 127)) for _ in pictures]

    def embed(self, model: ModelFiles, pictures: Sequence[Picture]) -> list[tuple[float, ...]]:
        return [(1.0, *[0.0] * 127) for _ in pictures]


@pytest.fixture
def champion(loop: Loop, trained: Weights) -> uuid.UUID:
    loop.labelled_drives([900], "golden")
    model = loop.register(trained(0), judged=True)
    loop.crown(model, loop.freeze_golden().id)
    return model


# --- what goes, and what stays --------------------------------------------------------------------------------------


def test_a_vehicle_leaves_nothing_but_its_tombstones_and_the_receipt(
    loop: Loop, eraser: Eraser, database_url: str
) -> None:
    mine = [loop.add_clip(7001, number=n, vehicle=VEHICLE) for n in range(2)]
    other = loop.add_clip(7002)
    for clip in (*mine, other):
        loop.label(clip)
    with loop.database.unit() as unit:
        make_device(unit, loop.project_id, "gateway", [VEHICLE, "another"], False, "tester")
        unit.commit()
    frozen = loop.freeze()
    run = loop.start_run(frozen.id)
    eraser.copies.run_folder(run).mkdir(parents=True)
    (eraser.copies.run_folder(run) / "samples.jsonl").write_text(str(mine))
    frame = loop.all(Frame, Frame.clip_id == mine[0])[0].id
    eraser.copies.keep_picture(eraser.copies.picture(frame, 640, "NoRedaction"), b"a picture")
    traces = eraser.traces(VEHICLE)
    assert traces.in_tables(database_url)
    assert traces.in_files()

    erasure = eraser.erase(vehicle=VEHICLE)
    assert erasure.state == "done"
    assert traces.in_tables(database_url) == []
    assert traces.in_files() == []
    assert erasure.receipt is not None
    assert erasure.receipt["clips"] == 2
    assert erasure.receipt["used_by"]["dataset_versions"] == [
        {"id": str(frozen.id), "line": "roads-0", "number": 1, "subjects": 4}
    ]
    removed = erasure.receipt["removed"]
    expected = {"clips": 2, "streams": 2, "frames": 4, "subjects": 4, "labels": 8, "drives": 1, "vehicles": 1}
    expected |= {"split_groups": 1, "media_claims": 2, "dataset_rows": 8, "ended_runs": 1, "run_folders": 1}
    expected |= {"cached_pictures": 1, "device_bindings": 1, "blobs": 2 + 4 + 1}
    assert {kind: removed[kind] for kind in expected} == expected
    assert loop.count(Label) == 4
    assert loop.clip(other).state == "received"
    with loop.database.read() as session:
        assert [row.vehicle_external_id for row in session.query(DeviceKeyVehicle)] == ["another"]
    assert files(loop) == blobs(loop)


def test_a_drive_takes_its_clips_and_not_its_vehicle(loop: Loop, eraser: Eraser, database_url: str) -> None:
    gone, kept = loop.add_clip(7001, vehicle=VEHICLE), loop.add_clip(7002, vehicle=VEHICLE)
    loop.label(gone)
    eraser.erase(drive="pool-7001", vehicle=VEHICLE)
    assert [clip.id for clip in loop.all(Clip)] == [kept]
    assert [drive.external_id for drive in loop.all(Drive)] == ["pool-7002"]
    assert loop.count(Vehicle) == 1
    assert files(loop) == blobs(loop)
    with pytest.raises(Gone, match="this drive was erased"):
        loop.add_clip(7001, number=5, vehicle=VEHICLE)
    loop.add_clip(7002, number=1, vehicle=VEHICLE)


def test_a_clip_takes_only_what_is_its_own(loop: Loop, eraser: Eraser) -> None:
    first, second = loop.add_clip(7001), loop.add_clip(7001, number=1)
    loop.label(first)
    loop.label(second)
    # The very same answer for another frame may be the very same bytes: a blob that something else has stays.
    (shared,) = loop.all(Frame, Frame.clip_id == second)[:1]
    pin(loop.database, loop.blobs, loop.reader, [f.id for f in loop.all(Frame)])
    picture = loop.all(Frame, Frame.id == shared.id)[0].picture_blob_id
    with loop.database.unit() as unit:
        mine = loop.all(Frame, Frame.clip_id == first)[0]
        unit.session.execute(text("UPDATE frames SET picture_blob_id = :b WHERE id = :f"), {"b": picture, "f": mine.id})
        unit.commit()
    eraser.erase(clip=first)
    assert [clip.id for clip in loop.all(Clip)] == [second]
    assert loop.count(Blob, Blob.id == picture) == 1
    assert files(loop) >= blobs(loop)
    with loop.database.read() as session:
        assert loop.blobs.read(sha256_of(session, picture))
    assert loop.count(Subject, Subject.clip_id == first) == 0
    assert loop.count(Label) == 4


def test_the_same_clip_sent_again_is_refused_under_any_name(loop: Loop, eraser: Eraser) -> None:
    clip = loop.add_clip(7001)
    erasure = eraser.erase(clip=clip)
    with pytest.raises(Gone, match=str(erasure.id)) as refused:
        loop.add_clip(7001)
    assert "this clip was erased" in refused.value.detail
    with loop.database.unit() as unit:  # as if it had been called otherwise
        unit.session.execute(text("DELETE FROM tombstones WHERE object_kind = 'clip'"))
        unit.commit()
    with pytest.raises(Gone, match="this very recording was erased"):
        loop.add_clip(7001)
    assert loop.count(Clip) == 0
    assert files(loop) == set()


def test_an_erased_vehicle_sends_no_more(loop: Loop, eraser: Eraser) -> None:
    loop.add_clip(7001, vehicle=VEHICLE)
    eraser.erase(vehicle=VEHICLE)
    with pytest.raises(Gone, match="this vehicle was erased"):
        loop.add_clip(7002, vehicle=VEHICLE)
    assert loop.count(Vehicle) == 0
    loop.add_clip(7002, vehicle="another")


def test_a_group_that_is_gone_keeps_its_split(loop: Loop, eraser: Eraser) -> None:
    loop.add_clip(7001, "golden", vehicle=VEHICLE)
    eraser.erase(vehicle=VEHICLE)
    assert loop.count(SplitGroup) == 0
    clip = loop.add_clip(7001, "golden", vehicle="another", number=1)
    assert loop.clip(clip).split == "golden"
    with loop.database.unit() as unit:
        unit.session.execute(text("UPDATE tombstones SET split = 'pool' WHERE object_kind = 'split_group'"))
        unit.session.execute(text("TRUNCATE split_groups CASCADE"))
        unit.commit()
    with pytest.raises(Conflict, match="is pool"):
        loop.add_clip(7001, "golden", vehicle="a third", number=2)


def test_asked_for_again_it_is_the_same_erasure(loop: Loop, eraser: Eraser) -> None:
    clip = loop.add_clip(7001, vehicle=VEHICLE)
    first = eraser.ask(vehicle=VEHICLE)
    assert eraser.ask(vehicle=VEHICLE) == first
    assert len(loop.jobs("erase")) == 1
    assert eraser.work() == "done"
    assert eraser.ask(vehicle=VEHICLE) == first
    assert eraser.ask(drive="pool-7001", vehicle=VEHICLE) == first
    assert eraser.ask(clip=clip) == first
    assert loop.count(Erasure) == 1
    acts = [entry.act for entry in loop.all(AuditEntry, AuditEntry.object_kind == "erasure")]
    assert acts == ["ask for erasure", "erase"]


@pytest.mark.parametrize("begun", [False, True])
def test_asked_for_again_one_that_has_died_goes_on(loop: Loop, eraser: Eraser, begun: bool) -> None:
    loop.add_clip(7001, vehicle=VEHICLE)
    erasure = eraser.ask(vehicle=VEHICLE)
    if begun:
        eraser.die_at("erase.after_clip")
    ledger.fail(loop.database, loop.claim("erase"), "the disk is full", retry=False)
    assert eraser.job().state == "dead"
    assert eraser.ask(vehicle=VEHICLE) == erasure
    assert eraser.work() == "done"


def test_what_is_not_there_or_not_clear_is_refused(loop: Loop, eraser: Eraser) -> None:
    loop.add_clip(7001, vehicle="one")
    loop.add_clip(7001, vehicle="two", number=1)
    with pytest.raises(NotFound, match="no vehicle"):
        eraser.ask(vehicle="nobody")
    with pytest.raises(NotFound, match="no clip"):
        eraser.ask(clip=uuid.uuid4())
    with pytest.raises(NotFound, match="no drive"):
        eraser.ask(drive="pool-7001", vehicle="nobody")
    with pytest.raises(Invalid, match="several vehicles"):
        eraser.ask(drive="pool-7001")
    for unclear in ({}, {"vehicle": "one", "clip": uuid.uuid4()}):
        with pytest.raises(Invalid, match="not clear"):
            eraser.ask(**unclear)


def test_a_file_that_was_put_just_now_is_looked_at_again(loop: Loop, eraser: Eraser) -> None:
    loop.add_clip(7001, vehicle=VEHICLE)
    erasure = eraser.ask(vehicle=VEHICLE)
    assert "put just now" in eraser.work(settled_s=60)
    assert eraser.erasure(erasure).state == "running"
    assert loop.count(Blob) == 0
    (name,) = files(loop)
    loop.blobs.put((loop.blobs.local_path(name)).read_bytes())
    with loop.database.unit() as unit:  # somebody else has stored the same, and needs it
        unit.session.add(
            Blob(project_id=loop.project_id, sha256=name, size_bytes=1, media_type="video/mp4", storage="managed")
        )
        unit.commit()
    assert eraser.work() == "done"
    assert files(loop) == {name}


# --- frozen sets, runs and judgements -------------------------------------------------------------------------------


def test_a_frozen_set_keeps_its_name_and_loses_the_rows(loop: Loop, eraser: Eraser) -> None:
    gone, kept = loop.labelled_drives([7001, 7002])
    frozen = loop.freeze()
    eraser.erase(clip=gone)
    (version,) = loop.all(DatasetVersion)
    assert (version.content_sha256, version.counts["labels"]) == (frozen.content_sha256, 8)
    assert version.erased is not None
    assert (version.erased["subjects"], version.erased["labels"]) == (2, 4)
    with loop.database.read() as session:
        data = loop.blobs.read(sha256_of(session, version.manifest_blob_id))
    header, rows = read(data, held_sha256(version))
    assert {row.clip_id for row in rows} == {str(kept)}
    assert version.remaining_sha256 == content_sha256(header, rows) != frozen.content_sha256
    again = loop.freeze()  # what is left is another version
    assert (again.created, again.number, again.labels) == (True, 2, 4)


def test_a_run_on_it_ends_and_no_other_begins(loop: Loop, eraser: Eraser, trained: Weights) -> None:
    gone, _ = loop.labelled_drives([7001, 7002])
    frozen = loop.freeze()
    running, waiting = loop.start_run(frozen.id, 1), loop.start_run(frozen.id, 2)
    lease = loop.claim("train")
    assert lease.subject_id == running

    class Cut:
        """A trainer during whose work the erasure comes."""

        def train(self, folder: Path, plan: Any, samples: Any, attempt: int, heartbeat: Any) -> TrainedModel:
            (folder / "samples.jsonl").write_text("laid out")
            eraser.erase(clip=gone)
            assert loop.run(running).state == "refused"
            folder.mkdir()  # its child does not know yet
            (folder / "checkpoint").write_text("written after all")
            heartbeat()
            raise AssertionError("it went on")

    with pytest.raises(LeaseLost):
        loop.train(Cut(), lease)
    assert not eraser.copies.run_folder(running).exists()
    assert [job.state for job in loop.jobs("train")] == ["cancelled", "cancelled"]
    for run in (running, waiting):
        assert "has lost 2 subjects to an erasure" in str(loop.run(run).failure)
    # Whatever has it worked on all the same is told why not.
    with loop.database.unit() as unit:
        unit.session.execute(text("UPDATE runs SET state = 'due', failure = NULL"))
        unit.commit()
    loop.enqueue("train", waiting)
    assert loop.train(Cut()) is None
    assert "2 subjects of dataset version 1 were erased, and are never trained on" in str(loop.run(waiting).failure)
    with pytest.raises(RuntimeError, match="lost rows"):
        loop.start_run(frozen.id, 3)


def test_weights_of_a_run_that_was_ended_at_its_record_go(loop: Loop, eraser: Eraser, trained: Weights) -> None:
    gone, _ = loop.labelled_drives([7001, 7002])
    run = loop.start_run(loop.freeze().id)
    lease = loop.claim("train")
    model = trained(0)

    class Late:
        def train(self, folder: Path, *_: Any) -> TrainedModel:
            eraser.erase(clip=gone)
            return model

    with pytest.raises(LeaseLost):
        loop.train(Late(), lease)  # type: ignore[arg-type]
    assert not eraser.copies.run_folder(run).exists()
    assert files(loop) == blobs(loop)


def test_a_golden_set_goes_on_with_what_is_left_and_so_does_what_models_said_of_it(
    loop: Loop, eraser: Eraser, trained: Weights, scorer: Scorer
) -> None:
    clips = loop.labelled_drives(range(100, 104), "golden")
    golden = loop.freeze_golden().id
    model = loop.register(trained(30))
    before = loop.judge(scorer, model, golden)
    erasure = eraser.erase(clip=clips[0])
    assert erasure.receipt is not None
    assert [each["id"] for each in erasure.receipt["used_by"]["golden_sets"]] == [str(golden)]
    kept = loop.all(GoldenEvidence)[0]
    loop.enqueue("judge", model, {"golden_set_id": str(golden)})
    with loop.database.unit() as unit:  # the same model, asked anew about what is left, says what was kept of it
        unit.session.execute(text("DELETE FROM golden_evidence"))
        unit.commit()
    after = loop.judge(scorer, model, golden)
    assert before is not None
    assert after is not None
    anew = loop.all(GoldenEvidence)[0]
    assert {head: round(value, 9) for head, value in kept.metrics.items()} == {
        head: round(value, 9) for head, value in anew.metrics.items()
    }
    with loop.database.read() as session:
        assert loop.blobs.read(sha256_of(session, anew.statistics_blob_id)) == loop.blobs.read(
            sha256_of(session, kept.statistics_blob_id)
        )
    (row,) = loop.all(GoldenSet)
    assert (row.erased or {})["subjects"] == 2


def test_the_receipt_names_the_models_that_came_of_it(loop: Loop, eraser: Eraser, trained: Weights) -> None:
    gone, _ = loop.labelled_drives([7001, 7002])
    loop.labelled_drives([100], "golden")
    run = loop.start_run(loop.freeze().id)
    first = loop.register(trained(0), run_id=run, judged=True)
    loop.crown(first, loop.freeze_golden().id)
    loop.labelled_drives([7003])
    with loop.database.unit() as unit:
        unit.session.execute(text("UPDATE runs SET state = 'finished'"))
        unit.commit()
    later = loop.start_run(loop.freeze().id)
    assert loop.run(later).initial_model_id == first
    second = loop.register(trained(30), run_id=later)
    with loop.database.unit() as unit:  # as if it had been trained on what never held the clip
        unit.session.execute(text("UPDATE runs SET state = 'finished'"))
        unit.session.execute(
            text("DELETE FROM dataset_subjects WHERE dataset_version_id = :d"),
            {"d": loop.run(later).dataset_version_id},
        )
        unit.commit()
    erasure = eraser.erase(clip=gone)
    assert erasure.receipt is not None
    told = {each["id"]: each["through"] for each in erasure.receipt["used_by"]["model_versions"]}
    assert told == {str(first): "trained on it", str(second): "started from one that was"}
