"""Every clip of the pool is scored once by a model version, in an embedding space that outlives it; golden never is."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from loop_fixtures import Loop
from sqlalchemy import insert, text
from sqlalchemy.exc import IntegrityError
from weights_fixtures import NobodyAsked

from engine.domain.ids import frame_id
from engine.jobs import ledger
from engine.jobs.ledger import LeaseLost
from engine.ports import FrameScore, ModelFiles, Picture, Scorer, TrainedModel
from engine.stages.score import ScoreBroken
from engine.store.blobs import sha256_of
from engine.store.lines import model_files
from engine.store.predictions import read
from engine.store.tables.metadata import new_id
from engine.store.tables.models import Embedding, Score, Scoring
from engine.store.tables.recordings import Stream, Subject

Weights = Callable[..., TrainedModel]


@pytest.fixture
def golden(loop: Loop) -> uuid.UUID:
    loop.labelled_drives([100], "golden")
    return loop.freeze_golden().id


@pytest.fixture
def champion(loop: Loop, golden: uuid.UUID, trained: Weights, scorer: Scorer) -> uuid.UUID:
    """A champion that was looked at on the golden set, so that it has its own reference."""
    model = loop.register(trained(60))
    loop.judge(scorer, model, golden)
    loop.crown(model, golden)
    return model


def vectors(loop: Loop) -> dict[uuid.UUID, np.ndarray]:
    with loop.database.read() as session:
        return {row.subject_id: np.asarray(row.vector, dtype=np.float64) for row in session.query(Embedding)}


def scores(loop: Loop, model: uuid.UUID) -> list[Score]:
    with loop.database.read() as session:
        query = session.query(Score).join(Scoring, Scoring.id == Score.scoring_id)
        return list(query.filter(Scoring.model_version_id == model))


def test_a_clip_is_scored_frame_by_frame_with_quantiles_and_embeddings(
    loop: Loop, champion: uuid.UUID, scorer: Scorer
) -> None:
    clip = loop.add_clip(1)
    assert loop.score(scorer) == 3  # six frames at four a second, one looked at every half second
    wanted = {frame_id(clip, "front", pts) for pts in loop.pts(clip)[::2]}
    assert {subject.id for subject in loop.all(Subject, Subject.clip_id == clip)} == wanted
    assert loop.clip(clip).state == "scored"
    found = scores(loop, champion)
    assert {(s.subject_id, s.head) for s in found} == {(w, head) for w in wanted for head in ("road", "light")}
    assert all(0.0 <= s.quantile <= 1.0 and math.isfinite(s.raw) for s in found)
    assert {key: len(vector) for key, vector in vectors(loop).items()} == dict.fromkeys(wanted, 128)
    assert all(np.linalg.norm(vector) == pytest.approx(1, abs=1e-3) for vector in vectors(loop).values())
    (scoring,) = loop.all(Scoring)
    with loop.database.read() as session:
        predictions = read(loop.blobs.read(sha256_of(session, scoring.predictions_blob_id)))
    assert {(p.subject_id, p.head): p.uncertainty for p in predictions} == {
        (str(s.subject_id), s.head): s.raw for s in found
    }


def test_a_clip_is_scored_once_by_a_model(loop: Loop, champion: uuid.UUID, scorer: Scorer) -> None:
    clip = loop.add_clip(1)
    loop.score(scorer)
    loop.enqueue("score", clip, {"model_version_id": str(champion), "line_id": str(loop.line_id)})
    assert loop.score(NobodyAsked()) == 0
    (scoring,) = loop.all(Scoring)
    double = {c.key: getattr(scoring, c.key) for c in Scoring.__table__.columns} | {"id": new_id()}
    with loop.database.unit() as unit, pytest.raises(IntegrityError, match="uq_scorings_clip_id_model_version_id"):
        unit.session.execute(insert(Scoring).values(**double))
    assert [job.state for job in loop.jobs("score")] == ["done", "done"]


def test_golden_and_erased_clips_are_never_scored(loop: Loop, champion: uuid.UUID) -> None:
    golden, erased = loop.add_clip(7, "golden"), loop.add_clip(8)
    assert [job.subject_id for job in loop.jobs("score", "due")] == [erased]
    with loop.database.unit() as unit:
        unit.session.execute(text("UPDATE clips SET state = 'erased' WHERE id = :id"), {"id": erased})
        unit.commit()
    loop.enqueue("score", golden, {"model_version_id": str(champion), "line_id": str(loop.line_id)})
    assert [loop.score(NobodyAsked()), loop.score(NobodyAsked())] == [0, 0]
    assert loop.count(Scoring) == 0


def test_a_later_champion_keeps_the_space_of_the_first(
    loop: Loop, golden: uuid.UUID, champion: uuid.UUID, trained: Weights, scorer: Scorer
) -> None:
    loop.add_clip(1)
    loop.score_pool(scorer)
    before = vectors(loop)
    later = loop.register(trained(60, 2), judged=True)
    loop.crown(later, golden)
    new_clip = loop.add_clip(2)
    assert loop.score_pool(scorer) == 2
    after = vectors(loop)
    assert all((after[key] == vector).all() for key, vector in before.items())
    # What the new champion scored first is embedded by the first champion's trunk, too.
    (fresh,) = [s.id for s in loop.all(Subject, Subject.clip_id == new_clip) if s.start_ns == min_start(loop, new_clip)]
    with loop.database.read() as session:
        first, other = (model_files(session, loop.blobs, model) for model in (champion, later))
    picture = next(iter(pictures(loop, new_clip)))
    assert after[fresh] == pytest.approx(np.asarray(scorer.embed(first, [picture])[0]), abs=2e-3)
    assert np.abs(after[fresh] - np.asarray(scorer.embed(other, [picture])[0])).max() > 0.01
    assert len(scores(loop, later)) == len(scores(loop, champion)) * 2


def min_start(loop: Loop, clip: uuid.UUID) -> int:
    return min(s.start_ns for s in loop.all(Subject, Subject.clip_id == clip))


def pictures(loop: Loop, clip: uuid.UUID) -> Sequence[Picture]:
    with loop.database.read() as session:
        (stream,) = loop.all(Stream, Stream.clip_id == clip)
        path = loop.blobs.local_path(sha256_of(session, stream.blob_id))
    return list(loop.reader.frames(path, loop.pts(clip)[:1]))


def test_selection_moves_to_a_model_when_the_whole_pool_has_its_scores(
    loop: Loop, golden: uuid.UUID, champion: uuid.UUID, trained: Weights, scorer: Scorer
) -> None:
    for seed in (1, 2):
        loop.add_clip(seed)
    loop.score_pool(scorer)
    later = loop.register(trained(60, 2), judged=True)
    loop.crown(later, golden)
    assert loop.line().selection_model_id == champion
    loop.score(scorer)
    assert loop.line().selection_model_id == champion  # half of the pool: ranks would mix
    loop.score(scorer)
    assert loop.line().selection_model_id == later


def test_a_clip_that_can_not_be_scored_does_not_hold_the_pool_up(
    loop: Loop, golden: uuid.UUID, champion: uuid.UUID, trained: Weights, scorer: Scorer
) -> None:
    broken, whole = loop.add_clip(1), loop.add_clip(2)
    loop.score_pool(scorer)
    later = loop.register(trained(60, 2), judged=True)
    loop.crown(later, golden)
    leases = {lease.subject_id: lease for lease in ledger.claim(loop.database, "score", "tester", 2)}
    ledger.fail(loop.database, leases[broken], "its file is broken", retry=False)
    loop.score(scorer, leases[whole])
    assert loop.line().selection_model_id == later


def test_a_model_without_a_reference_is_refused_before_it_is_asked(
    loop: Loop, golden: uuid.UUID, trained: Weights
) -> None:
    model = loop.register(trained(60))
    loop.crown(model, golden)
    loop.add_clip(1)
    with pytest.raises(ScoreBroken, match="no fixed reference for light, road"):
        loop.score(NobodyAsked())
    assert loop.count(Scoring) == 0


def test_answers_that_can_not_be_ranked_are_refused_whole(loop: Loop, champion: uuid.UUID, scorer: Scorer) -> None:
    class Unsure:
        """The real scorer, with one uncertainty gone wrong in the last frame."""

        def score(self, model: ModelFiles, pictures: Sequence[Picture]) -> list[FrameScore]:
            found = scorer.score(model, pictures)
            last = found[-1]
            return [*found[:-1], FrameScore(last.answers, {**last.uncertainty, "road": math.nan}, last.embedding)]

    clip = loop.add_clip(1)
    with pytest.raises(ScoreBroken, match="uncertainty of nan for road"):
        loop.score(Unsure())  # type: ignore[arg-type]
    assert [loop.count(table) for table in (Scoring, Score, Embedding)] == [0, 0, 0]
    assert loop.clip(clip).state == "received"


def test_a_worker_that_lost_its_lease_scores_nothing(loop: Loop, champion: uuid.UUID, scorer: Scorer) -> None:
    clip = loop.add_clip(1)
    lease = loop.claim("score")
    other = loop.take_away(lease)
    with pytest.raises(LeaseLost):
        loop.score(scorer, lease)
    assert loop.count(Scoring) == 0
    assert loop.score(scorer, other) == 3
    assert loop.clip(clip).state == "scored"
