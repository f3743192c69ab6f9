"""What is under way for a clip while it is erased finds it erased, records nothing, and leaves no bytes behind."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from erasure_fixtures import Eraser
from loop_fixtures import STREAM, Loop
from road_scenes import DEPTH
from sqlalchemy import text

from engine.domain.refusals import Conflict, Gone
from engine.ports import FrameScore, ModelFiles, Picture, Scorer, StoredBlob, TrainedModel
from engine.stages import freeze as freeze_stage
from engine.stages.freeze import freeze_golden
from engine.stages.import_labels import LabelImport, import_labels
from engine.stages.look import GoldenOvertaken
from engine.stages.pin import pin
from engine.stages.select import SelectionOvertaken, select_batch
from engine.stages.take_predictions import FramePrediction, take_predictions
from engine.store.tables.labels import GoldenSet, Label, QueueItem
from engine.store.tables.models import GoldenEvidence, Score, Scoring
from engine.store.tables.recordings import Blob, Clip, Frame, Subject

Weights = Callable[..., TrainedModel]
Meanwhile = Callable[[], object]


def files(loop: Loop) -> set[str]:
    return {path.name for path in (loop.folder / "blobs").rglob("*") if path.is_file()}


def blobs(loop: Loop) -> set[str]:
    return {str(blob.sha256) for blob in loop.all(Blob)}


class Interrupted:
    """A scorer during whose first answer something else happens."""

    def __init__(self, scorer: Scorer, meanwhile: Meanwhile) -> None:
        self._scorer, self._meanwhile = scorer, meanwhile

    def score(self, model: ModelFiles, pictures: Sequence[Picture]) -> list[FrameScore]:
        answers = self._scorer.score(model, pictures)
        self._meanwhile()
        return answers

    def embed(self, model: ModelFiles, pictures: Sequence[Picture]) -> list[tuple[float, ...]]:
        return self._scorer.embed(model, pictures)


class InterruptedReader:
    """A decoder that is done, when something else happens before its pictures are used."""

    def __init__(self, loop: Loop, meanwhile: Meanwhile) -> None:
        self._reader, self._meanwhile = loop.reader, meanwhile

    def frames(self, path: Path, pts: Sequence[int]) -> Iterator[Picture]:
        found = list(self._reader.frames(path, pts))
        self._meanwhile()
        self._meanwhile = lambda: None
        yield from found

    def encode_png(self, picture: Picture) -> bytes:
        return self._reader.encode_png(picture)

    def decode_image(self, data: bytes) -> Picture:
        return self._reader.decode_image(data)


class InterruptedBlobs:
    """A blob store that has stored something, when something else happens before it says so."""

    def __init__(self, loop: Loop, meanwhile: Meanwhile) -> None:
        self._blobs, self._meanwhile = loop.blobs, meanwhile

    def put(self, source: Any) -> StoredBlob:
        stored = self._blobs.put(source)
        once, self._meanwhile = self._meanwhile, lambda: None
        once()
        return stored

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blobs, name)


@pytest.fixture
def champion(loop: Loop, trained: Weights) -> uuid.UUID:
    loop.labelled_drives([100], "golden")
    model = loop.register(trained(30), judged=True)
    loop.crown(model, loop.freeze_golden().id)
    return model


@pytest.mark.parametrize("whole", [True, False])
def test_a_clip_that_is_being_scored(
    loop: Loop, eraser: Eraser, champion: uuid.UUID, scorer: Scorer, whole: bool
) -> None:
    clip = loop.add_clip(7001)

    def meanwhile() -> None:
        eraser.ask(clip=clip)
        eraser.work() if whole else eraser.work(settled_s=60)

    assert loop.score(Interrupted(scorer, meanwhile)) == 0
    assert (loop.count(Scoring), loop.count(Score), loop.count(Clip, Clip.id == clip)) == (0, 0, 0)
    assert loop.jobs("score") == []
    if not whole:
        eraser.work()
    assert files(loop) == blobs(loop)


def test_a_clip_that_is_marked_and_not_yet_gone(
    loop: Loop, eraser: Eraser, champion: uuid.UUID, scorer: Scorer
) -> None:
    clip = loop.add_clip(7001)
    lease = loop.claim("score")
    eraser.ask(clip=clip)
    eraser.die_at("erase.after_mark")
    assert loop.clip(clip).state == "erased"
    assert loop.score(scorer, lease) == 0
    assert loop.count(Scoring) == 0
    assert eraser.work() == "done"


def test_a_picture_that_is_being_pinned(loop: Loop, eraser: Eraser) -> None:
    gone, kept = loop.labelled_drives([7001, 7002])
    frames = [frame.id for frame in loop.all(Frame, Frame.clip_id == gone)]
    reader = InterruptedReader(loop, lambda: eraser.erase(clip=gone))
    others = [frame.id for frame in loop.all(Frame, Frame.clip_id == kept)]
    assert pin(loop.database, loop.blobs, reader, frames) == {}
    assert set(pin(loop.database, loop.blobs, reader, [*frames, *others])) == set(others)
    assert files(loop) == blobs(loop)


def test_predictions_that_are_being_sent(loop: Loop, eraser: Eraser, champion: uuid.UUID) -> None:
    clip = loop.add_clip(7001)
    pts = loop.pts(clip)[0]
    answers = {head: answer for head, answer in loop.scenes[clip].answers(pts).items() if head in ("road", "light")}
    sent = [FramePrediction(STREAM, pts, FrameScore(answers, dict.fromkeys(answers, 0.1), ()))]
    stored = InterruptedBlobs(loop, lambda: eraser.erase(clip=clip))
    with pytest.raises(Conflict, match="erased meanwhile"):
        take_predictions(loop.database, stored, loop.project_id, champion, clip, sent, "tester")
    assert loop.count(Scoring) == 0
    assert files(loop) == blobs(loop)


@pytest.mark.parametrize("split", ["pool", "golden"])
def test_a_set_that_is_being_frozen(loop: Loop, eraser: Eraser, split: str) -> None:
    gone, _ = loop.labelled_drives([7001, 7002], split)
    pin(loop.database, loop.blobs, loop.reader, [frame.id for frame in loop.all(Frame)])
    stored = InterruptedBlobs(loop, lambda: eraser.erase(clip=gone))
    frozen = (
        freeze_stage.freeze_dataset(loop.database, stored, loop.reader, loop.line_id)
        if split == "pool"
        else freeze_golden(loop.database, stored, loop.reader, loop.line_id, "golden")
    )
    assert (frozen.subjects, frozen.labels, frozen.number) == (2, 4, 1)
    assert files(loop) == blobs(loop)


def test_a_golden_set_that_a_model_is_being_judged_on(
    loop: Loop, eraser: Eraser, trained: Weights, scorer: Scorer
) -> None:
    clips = loop.labelled_drives([100, 101], "golden")
    golden = loop.freeze_golden().id
    model = loop.register(trained(0))
    with pytest.raises(GoldenOvertaken, match="lost subjects"):
        loop.judge(Interrupted(scorer, lambda: eraser.erase(clip=clips[0])), model, golden)
    assert loop.count(GoldenEvidence) == 0
    assert loop.model(model).score_reference is None
    assert files(loop) == blobs(loop)
    assert loop.judge(scorer, model, golden) is not None
    assert loop.count(GoldenSet) == 1


def test_frames_that_are_being_chosen(loop: Loop, eraser: Eraser, champion: uuid.UUID, scorer: Scorer) -> None:
    gone, kept = loop.add_clip(7001), loop.add_clip(7002)
    loop.score_pool(scorer)
    asked = {"head": "light", "class_name": "day", "min_score": 0.0}
    campaign = loop.campaign(budget=4, batch_size=4, triggers=[{"name": "rare_class", "parameters": asked}])
    loop.enqueue("select", campaign)
    lease = loop.claim("select")

    class Choosing:
        """Blobs that are read to choose by; the erasure comes after the last of them."""

        left = 2

        def read(self, sha256: str) -> bytes:
            data = loop.blobs.read(sha256)
            self.left -= 1
            if not self.left:
                eraser.erase(clip=gone)
            return data

    with pytest.raises(SelectionOvertaken):
        select_batch(loop.database, Choosing(), lease)  # type: ignore[arg-type]
    assert loop.count(QueueItem) == 0
    assert select_batch(loop.database, loop.blobs, lease) is not None
    assert {subject.clip_id for subject in loop.all(Subject)} >= {kept}
    assert loop.count(QueueItem) > 0


def test_labels_that_are_being_imported(make_loop: Callable[..., Loop], eraser: Eraser) -> None:
    loop = make_loop(DEPTH)
    clip = loop.add_clip(7001)
    truth = loop.scenes[clip].answers(0)["depth"]
    label = LabelImport(clip, STREAM, 0, "depth", truth.value, truth.array)
    stored = InterruptedBlobs(loop, lambda: eraser.erase(clip=clip))
    name, version = loop.ontology.name, loop.ontology.version
    with pytest.raises(Gone, match="was erased just now"):
        import_labels(loop.database, stored, loop.principal, name, version, "simulator", [label])
    assert (loop.count(Label), loop.count(Subject)) == (0, 0)
    assert files(loop) == set()


def test_a_clip_on_its_way_in_is_waited_for_or_refused(loop: Loop, eraser: Eraser) -> None:
    loop.add_clip(7001, vehicle="WVW-0815")
    erasure = eraser.ask(vehicle="WVW-0815")
    outcomes: list[object] = []

    def send(number: int) -> None:
        try:
            outcomes.append(loop.add_clip(7001, number=number, vehicle="WVW-0815"))
        except Gone as refused:
            outcomes.append(refused)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(1, 7)]
    for thread in threads[:3]:
        thread.start()
    assert eraser.work() == "done"
    for thread in threads[3:]:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 6
    assert loop.count(Clip) == 0
    assert files(loop) == set()
    receipt = eraser.erasure(erasure).receipt
    assert receipt is not None
    assert receipt["clips"] == 1 + sum(isinstance(outcome, uuid.UUID) for outcome in outcomes)


POINTS = (
    "erase.after_mark", "erase.after_set", "erase.after_clip", "erase.after_places", "erase.after_file",
    "erase.before_record",
)  # fmt: skip


@pytest.mark.slow
def test_killed_anywhere_it_goes_on_and_counts_once(loop: Loop, eraser: Eraser, database_url: str) -> None:
    clips = [loop.add_clip(7001, number=number, vehicle="WVW-0815") for number in range(3)]
    clips += [loop.add_clip(7002, "golden", vehicle="WVW-0815")]
    loop.labelled_drives([1], "pool")
    loop.labelled_drives([2], "golden")
    for clip in clips:
        loop.label(clip)
    loop.freeze()
    loop.freeze_golden()
    traces = eraser.traces("WVW-0815")
    expected = {"clips": 4, "streams": 4, "frames": 8, "labels": 16, "drives": 2, "vehicles": 1, "split_groups": 2}
    expected |= {"dataset_rows": 12, "golden_rows": 4, "blobs": 4 + 8 + 2, "media_claims": 4}
    erasure = eraser.ask(vehicle="WVW-0815")
    for point in POINTS:
        eraser.die_at(point)
        assert eraser.erasure(erasure).state == "running"
    assert eraser.work() == "done"
    removed = eraser.removed(erasure)
    assert {kind: removed.get(kind) for kind in expected} == expected
    assert traces.in_tables(database_url) == []
    assert traces.in_files() == []
    assert files(loop) == blobs(loop)
    with loop.database.read() as session:
        assert session.scalar(text("SELECT count(*) FROM erased_blobs")) == 0
