"""Frozen sets: the same labels are the same set, and golden is on neither side of the split but its own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

import numpy as np
import pytest
from loop_fixtures import Loop
from road_scenes import DEPTH, LIGHT, ROAD
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError

from engine.domain.answers import Answer
from engine.domain.ontology import Kind
from engine.jobs.ledger import LeaseLost
from engine.stages.freeze import NothingToFreeze, freeze_dataset
from engine.stages.train import answer_of
from engine.store import label_tasks
from engine.store.blobs import sha256_of
from engine.store.manifests import ManifestRow, content_sha256, read
from engine.store.tables.labels import (
    Annotation,
    DatasetLabel,
    DatasetSubject,
    DatasetVersion,
    GoldenSet,
    GoldenSubject,
    Label,
)
from engine.store.tables.metadata import new_id
from engine.store.tables.recordings import Blob, Frame, Subject


def manifest(loop: Loop, number: int) -> tuple[dict, list[ManifestRow]]:
    (version,) = loop.all(DatasetVersion, DatasetVersion.number == number)
    with loop.database.read() as session:
        return read(loop.blobs.read(sha256_of(session, version.manifest_blob_id)), version.content_sha256)


def test_the_same_labels_are_the_same_version_in_whatever_order_they_lie(loop: Loop) -> None:
    loop.labelled_drives([1, 2, 3])
    first = loop.freeze()
    assert (first.number, first.subjects, first.labels, first.created) == (1, 6, 12, True)
    with loop.database.unit() as unit:  # PostgreSQL writes each row anew, the last one first
        for label in reversed(loop.all(Label)):
            unit.session.execute(text("UPDATE labels SET created_by = 'moved' WHERE id = :id"), {"id": label.id})
        unit.commit()
    again = loop.freeze()
    assert (again.id, again.created) == (first.id, False)
    assert again.content_sha256 == first.content_sha256
    assert (again.subjects, again.labels) == (6, 12)
    assert loop.count(DatasetVersion) == 1
    _, rows = manifest(loop, 1)
    assert [(r.subject_id, r.head) for r in rows] == sorted((r.subject_id, r.head) for r in rows)


def test_a_revised_label_makes_a_new_version_and_leaves_the_old_one_as_it_was(loop: Loop) -> None:
    (clip,) = loop.labelled_drives([2])
    first = loop.freeze()
    other = Answer(Kind.CHOICE, {"choice": "night"})
    (new_label,) = loop.label(clip, frames=(0,), heads=["light"], answers={"light": other})
    second = loop.freeze()
    assert (second.number, second.created) == (2, True)
    assert second.content_sha256 != first.content_sha256
    old, new = [{r.label_id: r for r in manifest(loop, number)[1]} for number in (1, 2)]
    assert len(old) == len(new) == 4
    assert [json.loads(new[key].value) for key in new.keys() - old.keys()] == [{"choice": "night"}]
    assert str(new_label) in new
    assert loop.count(DatasetLabel, DatasetLabel.dataset_version_id == first.id) == 4


def test_a_manifest_says_all_that_a_trainer_needs(make_loop: Callable[..., Loop]) -> None:
    loop = make_loop(ROAD, LIGHT, DEPTH)
    clip = loop.add_clip(4, tags={"weather": "fog"})
    loop.label(clip, frames=(3,))
    loop.freeze()
    header, rows = manifest(loop, 1)
    assert header["split"] == "pool"
    assert header["ontology"]["digest"] == loop.ontology.digest
    assert [row.head for row in rows] == ["depth", "light", "road"]
    truth = loop.scenes[clip].answers(loop.pts(clip)[3])
    for row in rows:
        assert answer_of(loop.blobs, loop.ontology, row) == truth[row.head]
        assert (row.clip_id, row.split_group, row.pts) == (str(clip), "pool-4", loop.pts(clip)[3])
        assert json.loads(row.tags) == {"weather": "fog", "time_of_day": "day"}
    picture = loop.reader.decode_image(loop.blobs.read(rows[0].picture_sha256))
    drawn = np.frombuffer(loop.scenes[clip].picture(rows[0].pts).rgb, np.uint8).astype(int)
    assert np.abs(np.frombuffer(picture.rgb, np.uint8) - drawn).mean() < 8  # what the codec costs
    with pytest.raises(ValueError, match="does not hash"):
        read(loop.blobs.read(manifest_blob(loop)), content_sha256(header, rows[1:]))


def manifest_blob(loop: Loop) -> str:
    (version,) = loop.all(DatasetVersion)
    with loop.database.read() as session:
        return sha256_of(session, version.manifest_blob_id)


def test_golden_is_never_in_a_dataset_whoever_writes_the_row(loop: Loop) -> None:
    (pool,) = loop.labelled_drives([1])
    (golden,) = loop.labelled_drives([9], "golden")
    frozen = loop.freeze()
    assert {row.clip_id for row in manifest(loop, 1)[1]} == {str(pool)}
    golden_set = loop.freeze_golden()
    subject = loop.all(Subject, Subject.clip_id == golden)[0]
    pooled = loop.all(Subject, Subject.clip_id == pool)[0]
    insert = "INSERT INTO {table} ({key}, subject_id, split, project_id) VALUES (:key, :subject, :split, :project)"
    attempts = [
        ("dataset_subjects", "dataset_version_id", frozen.id, subject.id, "golden", "never_golden"),
        ("dataset_subjects", "dataset_version_id", frozen.id, subject.id, "pool", "fk_dataset_subjects_subject_id"),
        ("golden_subjects", "golden_set_id", golden_set.id, pooled.id, "pool", "only_golden"),
        ("golden_subjects", "golden_set_id", golden_set.id, pooled.id, "golden", "fk_golden_subjects_subject_id"),
    ]
    for table, key, set_id, subject_id, split, constraint in attempts:
        with loop.database.unit() as unit, pytest.raises(IntegrityError, match=constraint):
            unit.session.execute(
                text(insert.format(table=table, key=key)),
                {"key": set_id, "subject": subject_id, "split": split, "project": loop.project_id},
            )
    for change in (
        "UPDATE subjects SET split = 'pool' WHERE id = :id",
        "UPDATE clips SET split = 'pool' WHERE id = :clip",
    ):
        with loop.database.unit() as unit, pytest.raises(IntegrityError):
            unit.session.execute(text(change), {"id": subject.id, "clip": golden})
    assert loop.count(DatasetSubject) == 2
    assert loop.count(GoldenSubject) == 2


def test_what_may_not_be_used_is_left_out(loop: Loop) -> None:
    kept, erased, elsewhere = (loop.add_clip(1), loop.add_clip(2), loop.add_clip(3, purposes=["evaluation"]))
    withheld = loop.add_clip(5, "golden", purposes=["training"])
    judged = loop.add_clip(7, "golden", purposes=["evaluation"])
    for clip in (kept, erased, elsewhere, withheld, judged):
        loop.label(clip, frames=(0,))
    with loop.database.unit() as unit:
        unit.session.execute(text("UPDATE clips SET state = 'erased' WHERE id = :id"), {"id": erased})
        unit.commit()
    loop.freeze()
    assert {row.clip_id for row in manifest(loop, 1)[1]} == {str(kept)}
    golden = loop.freeze_golden()
    assert golden.subjects == 1
    with loop.database.read() as session:
        chosen = session.scalars(select(GoldenSubject.subject_id)).all()
    assert list(chosen) == [s.id for s in loop.all(Subject, Subject.clip_id == judged)]


def test_a_clip_that_expired_is_still_learned_from_by_its_pinned_pictures(loop: Loop) -> None:
    (clip,) = loop.labelled_drives([1])
    first = loop.freeze()
    with loop.database.unit() as unit:
        unit.session.execute(text("UPDATE clips SET state = 'expired' WHERE id = :id"), {"id": clip})
        unit.commit()
    assert loop.freeze().id == first.id


def test_without_labels_there_is_nothing_to_freeze(loop: Loop) -> None:
    loop.add_clip(1)
    loop.labelled_drives([3], "golden")
    with pytest.raises(NothingToFreeze, match="no label in the pool split"):
        loop.freeze()
    assert loop.count(DatasetVersion) == 0


def test_a_golden_set_gets_a_new_version_when_its_labels_differ(loop: Loop) -> None:
    (clip,) = loop.labelled_drives([3], "golden")
    first = loop.freeze_golden()
    assert loop.freeze_golden() == type(first)(**{**vars(first), "created": False})
    loop.label(clip, frames=(2,))
    second = loop.freeze_golden()
    assert (second.number, second.subjects) == (2, 3)
    assert [(s.version, s.looks, s.blind) for s in loop.all(GoldenSet)] == [(1, 0, True), (2, 0, True)]


def annotate(loop: Loop, label_id: uuid.UUID, shown: bool) -> None:
    """Have the label stand on what a person said, who was shown a prediction or not."""
    with loop.database.unit() as unit:
        label = unit.session.get_one(Label, label_id)
        task = label_tasks.add(
            unit.session, project_id=loop.project_id, subject_id=label.subject_id, ontology_id=label.ontology_id,
            slot=0, heads=[label.head], blind=not shown,
        )  # fmt: skip
        said = Annotation(
            id=new_id(), project_id=loop.project_id, task_id=task.id, tool_annotation=label.created_at.microsecond,
            revision=1, payload_sha256="p", annotator="ada", outcome="submitted", prediction_shown=shown,
            heads_answered=[label.head], classes_annotated={}, answers={}, payload={}, tool_updated_at="now",
        )  # fmt: skip
        unit.session.add(said)
        label.source, label.annotation_ids = "human", [str(said.id)]
        unit.commit()


def test_a_golden_set_is_blind_when_no_label_was_led_by_a_model(loop: Loop) -> None:
    (clip,) = loop.labelled_drives([3], "golden")
    (first,) = loop.label(clip, frames=(2,), heads=["road"])
    annotate(loop, first, shown=False)
    loop.freeze_golden("unseen")
    (led,) = loop.label(clip, frames=(3,), heads=["road"])
    annotate(loop, led, shown=True)
    loop.freeze_golden("led")
    loop.label(clip, frames=(3,), heads=["road"], answers={"road": loop.scenes[clip].answers(0)["road"]})
    loop.freeze_golden("set right")
    loop.label(clip, frames=(5,), heads=["road"], source="auto")
    loop.freeze_golden("of a model")
    blind = {golden.name: golden.blind for golden in loop.all(GoldenSet)}
    assert blind == {"unseen": True, "led": False, "set right": True, "of a model": False}


def test_a_worker_that_lost_its_lease_freezes_nothing(loop: Loop) -> None:
    loop.labelled_drives([1])
    loop.enqueue("freeze", loop.line_id)
    lease = loop.claim("freeze")
    loop.take_away(lease)
    with pytest.raises(LeaseLost):
        freeze_dataset(loop.database, loop.blobs, loop.reader, loop.line_id, lease)
    assert loop.count(DatasetVersion) == 0
    assert loop.freeze().number == 1


def test_pictures_are_pinned_once_as_png(loop: Loop) -> None:
    loop.labelled_drives([1])
    loop.freeze()
    pinned = {frame.id: frame.picture_blob_id for frame in loop.all(Frame)}
    assert all(pinned.values())
    kinds = {blob.id: blob.media_type for blob in loop.all(Blob)}
    assert {kinds[blob] for blob in pinned.values() if blob} == {"image/png"}
    loop.freeze()
    assert {frame.id: frame.picture_blob_id for frame in loop.all(Frame)} == pinned
