"""A campaign chooses under its budget what is uncertain and not redundant, with a random control arm beside it."""

from __future__ import annotations

import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from loop_fixtures import Loop
from sqlalchemy import select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from engine.jobs import ledger
from engine.ports import Scorer, TrainedModel
from engine.stages import campaign as campaigns
from engine.stages.campaign import CampaignRequest
from engine.stages.curate import drop
from engine.stages.select import NothingToSelectFrom, Selected, SelectionOvertaken, select_batch
from engine.store.predictions import class_scores
from engine.store.tables.labels import Campaign, QueueItem, Selection
from engine.store.tables.metadata import new_id
from engine.store.tables.models import ModelLine, Scoring
from engine.store.tables.recordings import Blob, Clip, Frame, Subject

Weights = Callable[..., TrainedModel]
POOL = 8  # clips, three scored frames each


@pytest.fixture
def pool(loop: Loop, trained: Weights, scorer: Scorer) -> list[uuid.UUID]:
    """Clips that the champion has scored."""
    loop.labelled_drives([100], "golden")
    loop.crown(loop.register(trained(60), judged=True), loop.freeze_golden().id)
    clips = [loop.add_clip(seed) for seed in range(POOL)]
    loop.score_pool(scorer)
    return clips


def items(loop: Loop, campaign_id: uuid.UUID) -> list[QueueItem]:
    return loop.all(QueueItem, QueueItem.campaign_id == campaign_id)


def times(loop: Loop, subjects: list[uuid.UUID]) -> dict[uuid.UUID, list[int]]:
    """When the subjects were taken, by clip."""
    found = defaultdict(list)
    for frame in loop.all(Frame, Frame.id.in_(subjects)):
        found[frame.clip_id].append(frame.capture_ns)
    return found


def test_a_batch_stays_in_its_budget_and_says_why_each_was_chosen(loop: Loop, pool: list[uuid.UUID]) -> None:
    campaign = loop.campaign(budget=7, batch_size=5, control_fraction=0.4, priority=3)
    first = loop.select(campaign)
    assert first is not None
    assert (first.pool, first.chosen, first.control, first.budget_left) == (POOL * 3, 3, 2, 2)
    batch = items(loop, campaign)
    assert len(batch) == 5
    control, chosen = ([item for item in batch if item.arm == arm] for arm in ("control", "chosen"))
    assert [item.inclusion_probability for item in control] == [pytest.approx(2 / (POOL * 3))] * 2
    assert [item.inclusion_probability for item in chosen] == [None] * 3
    for item in chosen:
        assert item.reason["head"] in ("road", "light")
        assert 0.0 <= item.reason["quantile"] <= 1.0
    assert len({item.priority for item in batch}) == 5
    assert all(2 < item.priority <= 3 for item in batch)
    assert {item.model_version_id for item in batch} == {loop.line().selection_model_id}
    (push,) = loop.jobs("push", "due")
    assert push.subject_id == loop.line().ontology_id

    second = loop.select(campaign)
    assert second is not None
    assert (second.chosen + second.control, second.budget_left) == (2, 0)
    assert loop.select(campaign) is None  # nothing is left to pay with
    (row,) = loop.all(Campaign)
    assert (row.spent, row.budget, loop.count(Selection)) == (7, 7, 2)
    with loop.database.unit() as unit, pytest.raises(IntegrityError, match="ck_campaigns_budget"):
        unit.session.execute(text("UPDATE campaigns SET spent = spent + 1"))


def test_frames_that_show_the_same_moment_are_not_chosen_together(loop: Loop, pool: list[uuid.UUID]) -> None:
    campaign = loop.campaign(budget=100, batch_size=100, control_fraction=0.0, settings={"window_s": 0.8})
    loop.select(campaign)
    taken = times(loop, [item.subject_id for item in items(loop, campaign)])
    assert len(taken) == POOL
    for at in taken.values():
        assert all(abs(a - b) >= 800_000_000 for a, b in combinations(at, 2))
    assert len(items(loop, campaign)) <= 2 * POOL


def test_clips_of_a_clock_that_starts_anew_with_each_are_not_taken_for_one_moment(
    loop: Loop, trained: Weights, scorer: Scorer
) -> None:
    loop.labelled_drives([100], "golden")
    loop.crown(loop.register(trained(60), judged=True), loop.freeze_golden().id)
    clips = [loop.add_clip(50, number=number) for number in range(3)]
    with loop.database.unit() as unit:
        unit.session.execute(update(Clip).where(Clip.id.in_(clips)).values(start_ns=0, clock_suspect=True))
        unit.commit()
    loop.score_pool(scorer)
    settings = {"window_s": 100.0}
    first, second = (loop.campaign(name, batch_size=2, control_fraction=0.0, settings=settings) for name in "ab")
    loop.select(first)
    loop.select(second)  # what is queued stands in the way of its own clip alone
    assert sorted(
        len(times(loop, [item.subject_id for item in items(loop, campaign)])) for campaign in (first, second)
    ) == [1, 2]
    assert set(times(loop, [item.subject_id for item in loop.all(QueueItem)])) == set(clips)


def test_what_is_labelled_for_the_wanted_heads_is_neither_chosen_nor_are_its_neighbours(
    loop: Loop, pool: list[uuid.UUID]
) -> None:
    loop.label(pool[0], frames=(2,), heads=["road", "light"])  # the middle one of the three
    loop.label(pool[1], frames=(2,), heads=["light"])
    campaign = loop.campaign(
        budget=100, batch_size=100, control_fraction=0.0, heads=["road"], settings={"window_s": 0.6}
    )
    loop.select(campaign)
    taken = times(loop, [item.subject_id for item in items(loop, campaign)])
    assert pool[0] not in taken
    assert len(taken[pool[1]]) >= 1  # a label for another head settles nothing of this one


def test_no_subject_is_chosen_twice_by_later_batches_or_other_campaigns(loop: Loop, pool: list[uuid.UUID]) -> None:
    first = loop.campaign("a", budget=12, batch_size=4, settings={"window_s": 0.1})
    second = loop.campaign("b", budget=100, batch_size=100, settings={"window_s": 0.1})
    for campaign in (first, first, second, first):
        loop.select(campaign)
    everything = [item.subject_id for item in loop.all(QueueItem)]
    assert len(everything) == len(set(everything)) == POOL * 3
    assert len(items(loop, first)) == 8  # the second campaign left nothing for its third batch


def test_an_item_that_was_dropped_is_not_chosen_again_by_its_campaign(loop: Loop, pool: list[uuid.UUID]) -> None:
    campaign = loop.campaign(budget=100, batch_size=2, settings={"window_s": 0.1})
    loop.select(campaign)
    dropped = items(loop, campaign)[0]
    with loop.database.unit() as unit:
        drop(unit, loop.project_id, dropped.id, "blurred", "Ada")
        unit.commit()
    for _ in range(POOL * 2):
        loop.select(campaign)
    subjects = [item.subject_id for item in items(loop, campaign)]
    assert len(subjects) == len(set(subjects)) == POOL * 3


def run_at_once(loop: Loop, jobs: list[uuid.UUID]) -> list[Selected | SelectionOvertaken | None]:
    """Work these select jobs in threads that all begin at once."""
    leases = [ledger.claim(loop.database, "select", "tester", job_id=job)[0] for job in jobs]
    start = threading.Barrier(len(leases))
    outcomes: list[Selected | SelectionOvertaken | None] = []

    def work(lease: ledger.Lease) -> None:
        start.wait()
        try:
            outcomes.append(select_batch(loop.database, loop.blobs, lease))
        except SelectionOvertaken as overtaken:
            outcomes.append(overtaken)

    threads = [threading.Thread(target=work, args=(lease,)) for lease in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(outcomes) == len(jobs)
    return outcomes


def wait_for_a_lock(session: Session) -> None:
    """Until a selection stands before a row that `session` holds."""
    deadline = time.monotonic() + 30
    while not session.scalar(text("SELECT count(*) FROM pg_locks WHERE NOT granted")):
        assert time.monotonic() < deadline, "the selection never came to its record"
        time.sleep(0.01)


def test_selections_at_once_neither_overspend_nor_choose_a_subject_twice(loop: Loop, pool: list[uuid.UUID]) -> None:
    first = loop.campaign("a", budget=6, batch_size=4)
    second = loop.campaign("b", budget=6, batch_size=4)
    for round_number in range(3):
        jobs = [loop.enqueue("select", campaign) for campaign in (first, first, second)]
        outcomes = run_at_once(loop, jobs)
        if round_number == 0:
            assert any(isinstance(outcome, Selected) for outcome in outcomes)
    subjects = [item.subject_id for item in loop.all(QueueItem)]
    assert len(subjects) == len(set(subjects))
    for campaign in loop.all(Campaign):
        assert campaign.spent == len(items(loop, campaign.id)) <= 6


def test_a_campaign_that_is_paused_chooses_nothing(loop: Loop, pool: list[uuid.UUID]) -> None:
    paused = loop.campaign("a")
    with loop.database.unit() as unit:
        campaigns.change_campaign(unit, loop.project_id, paused, state="paused")
        unit.commit()
    assert loop.select(paused) is None
    assert loop.count(Selection) == 0
    assert [job.state for job in loop.jobs("select")] == ["done"]


@pytest.mark.parametrize("change", [{"state": "paused"}, {"budget": 3}])
def test_a_batch_that_the_campaign_no_longer_wants_is_not_recorded(
    loop: Loop, pool: list[uuid.UUID], change: dict[str, Any]
) -> None:
    campaign = loop.campaign(budget=8, batch_size=8)
    job = loop.enqueue("select", campaign)
    outcomes: list[Any] = []
    with loop.database.unit() as unit:  # holds the campaign's row while its batch is being chosen
        unit.session.get_one(Campaign, campaign, with_for_update=True)
        thread = threading.Thread(target=lambda: outcomes.extend(run_at_once(loop, [job])))
        thread.start()
        wait_for_a_lock(unit.session)
        campaigns.change_campaign(unit, loop.project_id, campaign, **change)
        unit.commit()
    thread.join(30)
    assert [type(outcome) for outcome in outcomes] == [SelectionOvertaken]
    assert (loop.count(Selection), loop.count(QueueItem)) == (0, 0)


def test_two_lines_of_one_ontology_do_not_choose_the_same_subject(loop: Loop, pool: list[uuid.UUID]) -> None:
    """The second line selects while the first is about to record: then the first has to choose again."""
    first = loop.campaign("a", settings={"window_s": 0.1})
    with loop.database.unit() as unit:
        line = unit.session.get_one(ModelLine, loop.line_id)
        twin = {key: getattr(line, key) for key in ("project_id", "ontology_id", "champion_id", "embedding_space_id",
                                                    "selection_model_id", "settings")}  # fmt: skip
        unit.session.add(ModelLine(id=new_id(), name="twin", **twin))
        unit.session.flush()
        wanted = CampaignRequest("b", "twin", ["road", "light"], budget=8, batch_size=8, settings={"window_s": 0.1})
        second = campaigns.make_campaign(unit, loop.project_id, wanted).id
        unit.commit()
    jobs = [loop.enqueue("select", campaign) for campaign in (first, second)]
    with loop.database.unit() as unit:  # holds the first campaign's row: its batch is chosen, and not recorded yet
        unit.session.get_one(Campaign, first, with_for_update=True)
        outcomes: list[Any] = []
        thread = threading.Thread(target=lambda: outcomes.extend(run_at_once(loop, jobs[:1])))
        thread.start()
        wait_for_a_lock(unit.session)
        (other,) = run_at_once(loop, jobs[1:])
        assert isinstance(other, Selected)
    thread.join(30)
    assert [type(outcome) for outcome in outcomes] == [SelectionOvertaken]
    loop.select(first)
    subjects = [item.subject_id for item in loop.all(QueueItem)]
    assert len(subjects) == len(set(subjects)) == 16


def test_the_same_seed_chooses_the_same_again(loop: Loop, pool: list[uuid.UUID]) -> None:
    campaign = loop.campaign(budget=10, batch_size=5, control_fraction=0.4, seed=9)
    loop.select(campaign)
    before = [(i.subject_id, i.arm, i.seed, i.reason, i.priority) for i in items(loop, campaign)]
    with loop.database.unit() as unit:  # as if it had never been
        unit.session.execute(text("DELETE FROM queue_items"))
        unit.session.execute(text("DELETE FROM selections"))
        unit.session.execute(text("UPDATE campaigns SET spent = 0"))
        unit.commit()
    loop.select(campaign)
    assert [(i.subject_id, i.arm, i.seed, i.reason, i.priority) for i in items(loop, campaign)] == before
    loop.select(campaign)
    assert len({selection.seed for selection in loop.all(Selection)}) == 2


def test_with_nothing_scored_the_refusal_says_what_to_wait_for(loop: Loop) -> None:
    loop.add_clip(1)
    campaign = loop.campaign()
    with pytest.raises(NothingToSelectFrom, match="no model version that has scored the whole pool") as refused:
        loop.select(campaign)
    assert "promote a first champion" in refused.value.hint
    assert loop.count(Selection) == 0


def test_triggers_narrow_what_is_chosen_and_not_the_control_arm(
    loop: Loop, pool: list[uuid.UUID], scorer: Scorer
) -> None:
    foggy = loop.add_clip(50, tags={"weather": "fog"})
    loop.score_pool(scorer)
    campaign = loop.campaign(
        budget=100,
        batch_size=20,
        control_fraction=0.5,
        triggers=[{"name": "tag", "parameters": {"key": "weather", "value": "fog"}}],
        settings={"window_s": 0.1},
    )
    loop.select(campaign)
    arms = defaultdict(set)
    for item in items(loop, campaign):
        arms[item.arm].add(item.subject_id)
    in_fog = {subject.id for subject in loop.all(Subject, Subject.clip_id == foggy)}
    assert len(arms["control"]) == 10
    assert arms["chosen"] == in_fog - arms["control"]  # chance may give the control arm some of the fog, or all of it
    assert {len(item.trigger_sha256) for item in items(loop, campaign)} == {64}


def test_clips_without_the_purpose_of_training_are_not_chosen(
    loop: Loop, pool: list[uuid.UUID], scorer: Scorer
) -> None:
    private = loop.add_clip(60, purposes=["evaluation"])
    loop.score_pool(scorer)
    campaign = loop.campaign(budget=100, batch_size=100, settings={"window_s": 0.1})
    loop.select(campaign)
    clip_of = {subject.id: subject.clip_id for subject in loop.all(Subject)}
    assert private not in {clip_of[item.subject_id] for item in items(loop, campaign)}
    assert len(items(loop, campaign)) == POOL * 3


def test_a_hunt_for_a_class_chooses_what_the_predictions_hold(loop: Loop, pool: list[uuid.UUID]) -> None:
    with loop.database.read() as session:
        blobs = session.scalars(select(Blob.sha256).join(Scoring, Scoring.predictions_blob_id == Blob.id)).all()
    scores = {
        uuid.UUID(subject): heads["light"]["night"]
        for sha256 in blobs
        if sha256 is not None
        for subject, heads in class_scores(loop.blobs.read(sha256)).items()
    }
    bound = sorted(scores.values())[len(scores) // 2]
    hunted = {subject for subject, score in scores.items() if score >= bound}
    assert hunted < set(scores)  # the trigger has something to leave out
    trigger = {"name": "rare_class", "parameters": {"head": "light", "class_name": "night", "min_score": bound}}
    campaign = loop.campaign(
        budget=100, batch_size=100, control_fraction=0.0, triggers=[trigger], settings={"window_s": 0.01}
    )
    loop.select(campaign)
    assert {item.subject_id for item in items(loop, campaign)} == hunted
