"""The loop turns, with every worker of production: from clips to a champion, and on from what it chose itself."""

from __future__ import annotations

import time

import pytest
from loop_fixtures import Loop
from role_fixtures import Roles

from engine.stages import retrain
from engine.stages.campaign import request_selection
from engine.store.tables.labels import DatasetLabel, DatasetVersion, QueueItem
from engine.store.tables.models import GateReport, ModelVersion, Promotion, Run, Scoring, SeedNoise
from engine.store.tables.recordings import Frame, Subject

POOL, SEED_DRIVES, GOLDEN_DRIVES = range(8), range(20, 32), range(100, 108)


@pytest.mark.slow
def test_from_clips_to_a_champion_and_on_from_what_it_chose(loop: Loop, roles: Roles) -> None:
    start = time.monotonic()
    seconds: dict[str, float] = {}

    def done(stage: str) -> None:
        nonlocal start
        seconds[stage], start = round(time.monotonic() - start, 1), time.monotonic()

    for queue in ("gating", "retraining", "inference", "labeling"):
        roles.start(queue)
    pool = [loop.add_clip(seed) for seed in POOL]
    loop.labelled_drives(SEED_DRIVES)
    loop.labelled_drives(GOLDEN_DRIVES, "golden")
    loop.freeze_golden()
    done("ingest and label")

    with loop.database.unit() as unit:
        retrain.request(
            unit,
            loop.line_id,
            target_heads=["road"],
            start="scratch",
            seed=1,
            noise_seeds=[2],
            overrides={"steps": 80, "checkpoint_every": 40},
        )
        unit.commit()
    roles.wait(lambda: loop.count(GateReport) == 1, 120)
    (report,) = loop.all(GateReport)
    assert (report.verdict, report.reasons) == ("passed", [])
    roles.wait(lambda: loop.line().champion_id == report.challenger_id, 20)
    done("first champion")

    roles.wait(lambda: loop.count(Scoring) == len(POOL) + len(SEED_DRIVES), 60)
    roles.wait(lambda: not roles.open("train", "judge", "score"), 120)
    assert loop.count(SeedNoise) == 2  # both heads
    done("score the pool, measure the noise")

    campaign = loop.campaign(budget=6, batch_size=6)
    with loop.database.unit() as unit:
        request_selection(unit, loop.project_id, campaign)
        unit.commit()
    roles.wait(lambda: loop.count(QueueItem), 30)
    chosen = loop.all(QueueItem)
    assert {item.model_version_id for item in chosen} == {report.challenger_id}
    clip_of = {subject.id: subject.clip_id for subject in loop.all(Subject)}
    pts_of = {frame.id: frame.pts for frame in loop.all(Frame)}
    # The seed drives are labelled already; the control arm is drawn from all that may be labelled, theirs included.
    assert {clip_of[item.subject_id] for item in chosen if item.arm == "chosen"} <= set(pool)
    for item in chosen:  # the label tool is down: what it would have brought comes as an import
        clip = clip_of[item.subject_id]
        loop.label(clip, frames=[loop.pts(clip).index(pts_of[item.subject_id])])
    done("choose and label")

    with loop.database.unit() as unit:
        retrain.request(unit, loop.line_id, target_heads=["road"], seed=3, overrides={"steps": 10})
        unit.commit()
    roles.wait(lambda: loop.count(GateReport) == 2, 120)
    roles.wait(lambda: not roles.open("train", "judge", "promote", "score"), 60)
    done("second turn")
    print(seconds)

    first, noise, second = loop.all(Run)
    assert [run.state for run in (first, noise, second)] == ["finished"] * 3
    assert (second.start, second.initial_model_id) == ("warm", report.challenger_id)
    judged = loop.all(GateReport)[1]
    assert judged.champion_id == report.challenger_id
    assert {row["head"] for row in judged.report["rows"]} == {"road", "light"}
    assert loop.count(Promotion) == 1 + (judged.verdict == "passed")
    champion = judged.challenger_id if judged.verdict == "passed" else report.challenger_id
    assert loop.line().champion_id == champion
    assert loop.count(ModelVersion) == 3
    old, new = loop.all(DatasetVersion)
    # From the second model back to who said what: the chosen frames' labels are in its dataset and not in the first's.
    added = loop.count(DatasetLabel, DatasetLabel.dataset_version_id == new.id) - 4 * len(SEED_DRIVES)
    assert added == 2 * len(chosen)
    assert loop.count(DatasetLabel, DatasetLabel.dataset_version_id == old.id) == 4 * len(SEED_DRIVES)
    assert second.dataset_version_id == new.id
