"""What a model says elsewhere is recorded as if it had been asked here, once; and the gate judges it by that."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from loop_fixtures import STREAM, Loop
from weights_fixtures import NobodyAsked

from engine.domain.answers import Answer
from engine.domain.formats import ModelFormat
from engine.domain.ids import frame_id
from engine.domain.ontology import Kind
from engine.domain.refusals import Conflict, Invalid, NotFound
from engine.ports import FrameScore, Scorer, TrainedModel
from engine.stages.take_predictions import FramePrediction, Taken, take_golden_predictions, take_predictions
from engine.store.blobs import register
from engine.store.lines import add_model
from engine.store.tables.models import Embedding, EmbeddingSpace, GoldenEvidence, ModelLine, Score, Scoring
from engine.store.tables.recordings import Subject

Weights = Callable[..., TrainedModel]
HEADS = ("road", "light")
GOLDEN = range(100, 108)


def unit(seed: int) -> tuple[float, ...]:
    vector = np.random.default_rng(seed).normal(size=128)
    return tuple(float(value) for value in vector / np.linalg.norm(vector))


@pytest.fixture
def elsewhere(loop: Loop) -> uuid.UUID:
    """A version of the line that nobody here can ask."""
    stored = loop.blobs.put(b'{"heads":["road","light"]}')
    with loop.database.unit() as work:
        version = add_model(
            work.session,
            work.session.get_one(ModelLine, loop.line_id),
            origin="registered",
            run_id=None,
            heads=list(HEADS),
            weights_blob_id=register(work.session, loop.project_id, stored, "application/octet-stream").id,
            weights_sha256=stored.sha256,
            config={"heads": list(HEADS)},
            created_by="test",
            format=ModelFormat.PREDICTIONS,
        )
        work.commit()
    return version.id


@pytest.fixture
def golden(loop: Loop) -> uuid.UUID:
    loop.labelled_drives(range(8))
    loop.labelled_drives(GOLDEN, "golden")
    loop.freeze()
    return loop.freeze_golden().id


def truth(loop: Loop, clip: uuid.UUID, pts: int, doubt: float = 0.1) -> FrameScore:
    """The right answers of both heads."""
    answers = {head: answer for head, answer in loop.scenes[clip].answers(pts).items() if head in HEADS}
    return FrameScore(answers, dict.fromkeys(HEADS, doubt), unit(pts))


def frames(loop: Loop, clip: uuid.UUID, *places: int) -> list[FramePrediction]:
    pts = loop.pts(clip)
    return [FramePrediction(STREAM, pts[i], truth(loop, clip, pts[i], (i + 1) / 10)) for i in places or (0, 2)]


def send(loop: Loop, model: uuid.UUID, clip: uuid.UUID, given: list[FramePrediction]) -> Taken:
    return take_predictions(loop.database, loop.blobs, loop.project_id, model, clip, given, "tester")


def golden_scores(loop: Loop) -> dict[uuid.UUID, FrameScore]:
    return {
        frame_id(clip, STREAM, pts): truth(loop, clip, pts, place / 10)
        for clip, scene in loop.scenes.items()
        if scene.seed in GOLDEN
        for place, pts in enumerate(loop.pts(clip)[i] for i in (0, 4))
    }


def send_golden(loop: Loop, model: uuid.UUID, golden: uuid.UUID, given: dict[uuid.UUID, FrameScore]) -> Taken:
    return take_golden_predictions(loop.database, loop.blobs, loop.project_id, model, golden, given, "tester")


@pytest.fixture
def judged(loop: Loop, elsewhere: uuid.UUID, golden: uuid.UUID) -> uuid.UUID:
    """That version, with its answers for the golden set and so with its reference."""
    send_golden(loop, elsewhere, golden, golden_scores(loop))
    return elsewhere


def test_the_gate_judges_what_was_sent_and_asks_nobody(loop: Loop, judged: uuid.UUID, golden: uuid.UUID) -> None:
    report = loop.judge(NobodyAsked(), judged, golden, target_heads=["road"])
    assert report is not None
    assert report.verdict == "passed", report.reasons
    rows = {row["head"]: row for row in report.report["rows"] if row["slice"] is None}
    assert (rows["road"]["challenger"], rows["light"]["challenger"]) == (1.0, 1.0)
    assert loop.count(Scoring) == 0, "what is said of golden pictures is no score: nobody may choose by it"


def test_pictures_that_were_left_out_count_as_wrong(loop: Loop, elsewhere: uuid.UUID, golden: uuid.UUID) -> None:
    half = dict(sorted(golden_scores(loop).items(), key=lambda item: str(item[0]))[::2])
    send_golden(loop, elsewhere, golden, half)
    report = loop.judge(NobodyAsked(), elsewhere, golden)
    assert report is not None
    rows = {row["head"]: row for row in report.report["rows"] if row["slice"] is None}
    assert rows["light"]["missing"] == 8
    assert rows["light"]["challenger"] == 0.5


def test_without_its_answers_the_gate_says_how_to_send_them(
    loop: Loop, elsewhere: uuid.UUID, golden: uuid.UUID
) -> None:
    with pytest.raises(Conflict) as refused:
        loop.judge(NobodyAsked(), elsewhere, golden)
    assert refused.value.code == "no-golden-predictions"
    assert f"/v1/golden-sets/{golden}/predictions" in refused.value.hint


def test_golden_answers_are_sent_once(loop: Loop, judged: uuid.UUID, golden: uuid.UUID) -> None:
    given = golden_scores(loop)
    assert not send_golden(loop, judged, golden, given).created
    subject = next(iter(given))
    changed = {**given, subject: replace(given[subject], uncertainty={"road": 0.9, "light": 0.1})}
    with pytest.raises(Conflict, match="said something else of this golden set"):
        send_golden(loop, judged, golden, changed)
    assert loop.count(GoldenEvidence) == 1
    with pytest.raises(Invalid, match="not in the golden set"):
        send_golden(loop, judged, golden, {uuid.uuid4(): given[subject]})


def test_a_model_that_can_be_asked_is_not_believed(loop: Loop, golden: uuid.UUID, trained: Weights) -> None:
    with pytest.raises(Conflict, match="the gate asks it itself"):
        send_golden(loop, loop.register(trained(0)), golden, golden_scores(loop))


def test_what_is_sent_of_a_clip_is_recorded_as_scores_are(loop: Loop, judged: uuid.UUID, golden: uuid.UUID) -> None:
    loop.crown(judged, golden)
    clip = loop.add_clip(20)
    taken = send(loop, judged, clip, frames(loop, clip, 0, 2, 5))
    assert (taken.created, taken.subjects, taken.embeddings) == (True, 3, 3)
    pts = loop.pts(clip)
    wanted = {frame_id(clip, STREAM, pts[i]): i for i in (0, 2, 5)}
    assert {subject.id for subject in loop.all(Subject, Subject.clip_id == clip)} == set(wanted)
    with loop.database.read() as session:
        found = list(session.query(Score).join(Scoring).filter(Scoring.clip_id == clip))
        vectors = {row.subject_id: np.asarray(row.vector, np.float64) for row in session.query(Embedding)}
    assert {(s.subject_id, s.head): s.raw for s in found} == {
        (subject, head): pytest.approx((i + 1) / 10) for subject, i in wanted.items() for head in HEADS
    }
    assert all(0 <= s.quantile <= 1 for s in found)
    assert set(vectors) == set(wanted)
    for subject, vector in vectors.items():
        assert vector == pytest.approx(np.asarray(unit(pts[wanted[subject]])), abs=1e-5)
    assert loop.clip(clip).state == "scored"


def test_the_same_again_changes_nothing_in_any_order_and_something_else_is_a_conflict(
    loop: Loop, judged: uuid.UUID
) -> None:
    clip = loop.add_clip(20)
    given = frames(loop, clip)
    first = send(loop, judged, clip, given)
    again = send(loop, judged, clip, given[::-1])
    assert (again.created, again.scoring_id) == (False, first.scoring_id)
    other_place = replace(given[0], score=replace(given[0].score, embedding=unit(99)))
    less_sure = replace(given[0], score=replace(given[0].score, uncertainty={"road": 1.0, "light": 0.1}))
    for changed in ([other_place, given[1]], [less_sure, given[1]], given[:1], frames(loop, clip, 0, 2, 4)):
        with pytest.raises(Conflict, match="said something else of clip"):
            send(loop, judged, clip, changed)
    assert loop.count(Scoring) == 1
    assert loop.count(Embedding) == 2


def test_the_pool_is_chosen_from_once_all_of_it_was_sent(loop: Loop, judged: uuid.UUID, golden: uuid.UUID) -> None:
    early, late = loop.add_clip(20), loop.add_clip(21)
    pool = [clip for clip, scene in loop.scenes.items() if scene.seed not in GOLDEN]
    send(loop, judged, early, frames(loop, early))  # before it is the champion
    loop.crown(judged, golden)
    assert loop.score_pool(NobodyAsked()) == len(pool) - 1  # nobody is asked, and nothing is scored
    assert loop.count(Scoring) == 1
    for clip in pool:
        if clip not in (early, late):
            send(loop, judged, clip, frames(loop, clip))
    assert loop.line().selection_model_id is None
    send(loop, judged, late, frames(loop, late))
    assert loop.line().selection_model_id == judged
    chosen = loop.select(loop.campaign(heads=["road"]))
    assert chosen is not None
    assert loop.count(Embedding) == 2 * len(pool)


def test_where_the_line_has_another_models_space_a_worker_fills_it(
    loop: Loop, judged: uuid.UUID, golden: uuid.UUID, trained: Weights, scorer: Scorer
) -> None:
    first = loop.register(trained(60), judged=True)
    loop.crown(first, golden)
    loop.score_pool(scorer)
    (space,) = loop.all(EmbeddingSpace)
    loop.crown(judged, golden)
    clip = loop.add_clip(20)
    assert loop.score_pool(NobodyAsked()) > 0
    send(loop, judged, clip, frames(loop, clip, 1, 3))
    assert loop.score_pool(scorer) == 1
    with loop.database.read() as session:
        placed = {row.subject_id for row in session.query(Embedding).filter(Embedding.space_id == space.id)}
    assert {frame_id(clip, STREAM, loop.pts(clip)[i]) for i in (1, 3)} <= placed
    assert loop.count(Scoring, Scoring.clip_id == clip) == 1


def test_after_a_model_that_can_not_be_asked_a_new_space_begins(
    loop: Loop, judged: uuid.UUID, golden: uuid.UUID, trained: Weights, scorer: Scorer
) -> None:
    loop.crown(judged, golden)
    before = loop.line().embedding_space_id
    later = loop.register(trained(60), judged=True)
    loop.crown(later, golden)
    after = loop.line().embedding_space_id
    assert before != after
    loop.score_pool(scorer)
    pool = [clip for clip, scene in loop.scenes.items() if scene.seed not in GOLDEN]
    assert loop.line().selection_model_id == later
    assert loop.count(Embedding, Embedding.space_id == after) == 3 * len(pool)


def test_golden_clips_and_strange_ones_are_refused(loop: Loop, judged: uuid.UUID) -> None:
    golden_clip = next(clip for clip, scene in loop.scenes.items() if scene.seed in GOLDEN)
    with pytest.raises(Conflict, match="golden"):
        send(loop, judged, golden_clip, frames(loop, golden_clip))
    clip = loop.add_clip(20)
    with pytest.raises(NotFound):
        send(loop, judged, uuid.uuid4(), frames(loop, clip))
    with pytest.raises(NotFound):
        send(loop, uuid.uuid4(), clip, frames(loop, clip))
    with pytest.raises(NotFound):
        take_predictions(loop.database, loop.blobs, uuid.uuid4(), judged, clip, frames(loop, clip), "a stranger")


def test_a_model_without_a_reference_is_told_to_be_judged_first(loop: Loop, elsewhere: uuid.UUID) -> None:
    clip = loop.add_clip(20)
    with pytest.raises(Conflict, match="no fixed reference"):
        send(loop, elsewhere, clip, frames(loop, clip))


def box_in_light(score: FrameScore) -> FrameScore:
    return replace(score, answers={**score.answers, "light": Answer(Kind.BOXES, {"objects": []})})


WRONG: dict[str, tuple[Callable[[FramePrediction], FramePrediction], str]] = {
    "stream": (lambda f: replace(f, stream="rear"), "cameras front"),
    "pts": (lambda f: replace(f, pts=f.pts + 1), "no frame at this PTS"),
    "head": (lambda f: replace(f, score=replace(f.score, answers={"road": f.score.answers["road"]})), "head 'light'"),
    "strange head": (
        lambda f: replace(f, score=replace(f.score, answers={**f.score.answers, "moon": f.score.answers["road"]})),
        "no head 'moon'",
    ),
    "kind": (lambda f: replace(f, score=box_in_light(f.score)), "the answer is boxes"),
    "uncertainty": (
        lambda f: replace(f, score=replace(f.score, uncertainty={"road": math.nan, "light": 0})),
        "uncertainty of nan",
    ),
    "no embedding": (lambda f: replace(f, score=replace(f.score, embedding=())), "no embedding"),
    "short embedding": (lambda f: replace(f, score=replace(f.score, embedding=(1.0,))), "has 1 numbers"),
    "long embedding": (
        lambda f: replace(f, score=replace(f.score, embedding=tuple(2 * v for v in f.score.embedding))),
        "length 2",
    ),
    "answer": (
        lambda f: replace(
            f,
            score=replace(f.score, answers={**f.score.answers, "light": Answer(Kind.CHOICE, {"choice": "dusk"})}),
        ),
        "no class 'dusk'",
    ),
    "score": (
        lambda f: replace(
            f,
            score=replace(
                f.score, answers={**f.score.answers, "light": Answer(Kind.CHOICE, {"choice": "day", "score": 7})}
            ),
        ),
        r"in \[0, 1\], not 7",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_wrong_frame_refuses_all_of_them(loop: Loop, judged: uuid.UUID, name: str) -> None:
    change, why = WRONG[name]
    clip = loop.add_clip(20)
    given: list[Any] = frames(loop, clip)
    with pytest.raises(Invalid, match=why):
        send(loop, judged, clip, [given[0], change(given[1])])
    with pytest.raises(Invalid, match="twice"):
        send(loop, judged, clip, [given[0], given[0]])
    assert loop.count(Scoring) == 0
