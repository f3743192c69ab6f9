"""The champion is compared and set in one transaction; whatever it was compared with has to be so still."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

import pytest
from loop_fixtures import Loop
from sqlalchemy import text

from engine.jobs.ledger import LeaseLost
from engine.ports import Scorer, TrainedModel
from engine.stages.promote import Moved, NotPromoted, promote, rollback
from engine.store.tables.access import AuditEntry
from engine.store.tables.models import EmbeddingSpace, GateReport, ModelArtifact, Promotion
from engine.store.tables.recordings import Blob

Weights = Callable[..., TrainedModel]


@pytest.fixture
def golden(loop: Loop) -> uuid.UUID:
    loop.labelled_drives([100], "golden")
    return loop.freeze_golden().id


def roll_back(loop: Loop, actor: str, reason: str, to_number: int | None = None) -> Moved:
    with loop.database.unit() as unit:
        moved = rollback(unit, loop.line_id, actor, reason, to_number)
        unit.commit()
    return moved


@pytest.fixture
def models(loop: Loop, trained: Weights) -> list[uuid.UUID]:
    """Three versions with weights of their own."""
    return [loop.register(trained(0, seed), judged=True) for seed in (1, 2, 3)]


def champion(loop: Loop) -> int | None:
    champion_id = loop.line().champion_id
    return loop.model(champion_id).number if champion_id else None


def test_a_passed_report_moves_the_champion_with_its_record_and_its_audit(
    loop: Loop, golden: uuid.UUID, models: list[uuid.UUID]
) -> None:
    report = loop.pass_report(models[0], golden)
    loop.enqueue("promote", report)
    moved = promote(loop.database, report, "gate", loop.claim("promote"))
    assert (moved.from_number, moved.to_number, champion(loop)) == (None, 1, 1)
    assert [job.state for job in loop.jobs("promote")] == ["done"]
    (promotion,) = loop.all(Promotion)
    assert (promotion.act, promotion.from_model_id, promotion.to_model_id) == ("promote", None, models[0])
    assert (promotion.gate_report_id, promotion.actor) == (report, "gate")
    (entry,) = loop.all(AuditEntry, AuditEntry.act == "promote")
    assert (entry.actor, entry.object_id) == ("gate", str(loop.line_id))
    assert entry.details["weights_sha256"] == loop.model(models[0]).weights_sha256


def test_a_report_on_another_champion_is_refused(loop: Loop, golden: uuid.UUID, models: list[uuid.UUID]) -> None:
    stale = loop.pass_report(models[1], golden)  # compared with no champion at all
    loop.crown(models[0], golden)
    with pytest.raises(NotPromoted, match="another champion"):
        promote(loop.database, stale, "tester")
    assert champion(loop) == 1
    assert loop.count(Promotion) == 1


def test_a_refused_report_and_one_of_the_champion_itself_move_nothing(
    loop: Loop, golden: uuid.UUID, models: list[uuid.UUID]
) -> None:
    refused = loop.pass_report(models[0], golden)
    with loop.database.unit() as unit:
        unit.session.execute(text("UPDATE gate_reports SET verdict = 'refused', reasons = '[\"too weak\"]'"))
        unit.commit()
    with pytest.raises(NotPromoted, match="refused by the gate: too weak"):
        promote(loop.database, refused, "tester")
    loop.crown(models[0], golden)
    with pytest.raises(NotPromoted, match="champion already"):
        promote(loop.database, loop.pass_report(models[0], golden), "tester")
    with pytest.raises(NotPromoted, match="no gate report"):
        promote(loop.database, uuid.uuid4(), "tester")
    assert loop.count(Promotion) == 1


@pytest.mark.parametrize("change", ["digest", "blob"])
def test_other_weights_than_the_judged_ones_are_refused(
    loop: Loop, golden: uuid.UUID, models: list[uuid.UUID], change: str
) -> None:
    report = loop.pass_report(models[0], golden)
    other = loop.model(models[1]).weights_sha256
    (artifact,) = loop.all(ModelArtifact, ModelArtifact.model_version_id == models[0])
    (blob,) = loop.all(Blob, Blob.sha256 == other)
    values = (
        {"digest": other, "blob": artifact.blob_id}
        if change == "digest"
        else {"digest": artifact.digest, "blob": blob.id}
    )
    with loop.database.unit() as unit:
        unit.session.execute(
            text("UPDATE model_artifacts SET digest = :digest, blob_id = :blob WHERE id = :id"),
            {**values, "id": artifact.id},
        )
        unit.commit()
    with pytest.raises(NotPromoted, match="not those that the gate judged"):
        promote(loop.database, report, "tester")
    assert champion(loop) is None


def test_of_two_promotions_at_once_one_is_made(loop: Loop, golden: uuid.UUID, models: list[uuid.UUID]) -> None:
    loop.crown(models[0], golden)
    reports = [loop.pass_report(model, golden) for model in models[1:]]
    start = threading.Barrier(2)
    outcomes: list[Moved | NotPromoted] = []

    def move(report: uuid.UUID) -> None:
        start.wait()
        try:
            outcomes.append(promote(loop.database, report, "tester"))
        except NotPromoted as refused:
            outcomes.append(refused)

    threads = [threading.Thread(target=move, args=(report,)) for report in reports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(outcomes) == 2
    (moved,) = [outcome for outcome in outcomes if isinstance(outcome, Moved)]
    assert (moved.from_number, moved.to_number) == (1, champion(loop))
    assert loop.count(Promotion) == 2
    assert loop.count(AuditEntry, AuditEntry.act == "promote") == 2


def test_a_worker_that_lost_its_lease_moves_nothing(loop: Loop, golden: uuid.UUID, models: list[uuid.UUID]) -> None:
    report = loop.pass_report(models[0], golden)
    loop.enqueue("promote", report)
    lease = loop.claim("promote")
    other = loop.take_away(lease)
    with pytest.raises(LeaseLost):
        promote(loop.database, report, "gate", lease)
    assert champion(loop) is None
    promote(loop.database, report, "gate", other)
    assert champion(loop) == 1


def test_rolling_back_walks_to_the_champions_before_and_to_any_that_was_one(
    loop: Loop, golden: uuid.UUID, models: list[uuid.UUID], trained: Weights
) -> None:
    never = loop.register(trained(30), judged=True)
    with pytest.raises(NotPromoted, match="no earlier champion"):
        roll_back(loop, "Ada", "none yet")
    for model in models:
        loop.crown(model, golden)
    assert roll_back(loop, "Ada", "ghost brakes").to_number == 2
    assert roll_back(loop, "Ada", "still").to_number == 1  # and not forward to 3
    with pytest.raises(NotPromoted, match="no earlier champion"):
        roll_back(loop, "Ada", "further")
    assert roll_back(loop, "Ada", "it was not that", to_number=3).to_number == 3
    assert champion(loop) == 3
    with pytest.raises(NotPromoted, match="version 4 never was champion"):
        roll_back(loop, "Ada", "try", to_number=loop.model(never).number)
    with pytest.raises(NotPromoted, match="version 3"):
        roll_back(loop, "Ada", "where it is", to_number=3)
    acts = [(p.act, p.reason) for p in loop.all(Promotion)]
    assert acts[:3] == [("promote", None)] * 3
    assert acts[3:] == [("rollback", "ghost brakes"), ("rollback", "still"), ("rollback", "it was not that")]
    assert [e.details["to"] for e in loop.all(AuditEntry, AuditEntry.act == "rollback")] == [2, 1, 3]
    assert loop.count(GateReport) == 3


def test_after_a_promotion_the_pool_is_scored_once_by_the_new_champion(
    loop: Loop, golden: uuid.UUID, models: list[uuid.UUID], scorer: Scorer
) -> None:
    pool = [loop.add_clip(seed) for seed in (1, 2)]
    assert loop.jobs("score") == []  # without a champion there is nobody to score
    moved = loop.crown(models[0], golden)
    assert moved.rescored == 2
    assert sorted(job.subject_id for job in loop.jobs("score", "due")) == pool
    assert all(job.priority < 0 for job in loop.jobs("score"))  # live clips go first
    live = loop.add_clip(3)
    assert loop.claim("score").subject_id == live
    assert loop.score_pool(scorer) == 2
    loop.crown(models[1], golden)
    assert len(loop.jobs("score", "due")) == 3
    loop.score_pool(scorer)
    roll_back(loop, "Ada", "back")
    # Two clips have his scores on record; the third's job is still with the worker that claimed it.
    assert loop.jobs("score", "due") == []
    assert len(loop.jobs("score")) == 6
    assert loop.count(EmbeddingSpace) == 1


def test_the_embedding_space_stays_that_of_the_first_champion(
    loop: Loop, golden: uuid.UUID, models: list[uuid.UUID]
) -> None:
    loop.crown(models[0], golden)
    space = loop.line().embedding_space_id
    loop.crown(models[1], golden)
    assert loop.line().embedding_space_id == space
    assert [s.model_version_id for s in loop.all(EmbeddingSpace)] == [models[0]]


def test_without_a_pool_the_new_champion_is_selected_by_at_once(
    loop: Loop, golden: uuid.UUID, models: list[uuid.UUID]
) -> None:
    loop.crown(models[0], golden)
    assert loop.line().selection_model_id == models[0]
