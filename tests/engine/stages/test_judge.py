"""Models are judged on the golden set: what is better passes, what is spoiled or unproven is refused, and why."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loop_fixtures import SETTINGS, Loop
from road_scenes import DEPTH, LIGHT, ROAD
from safetensors.numpy import load_file, save_file
from sqlalchemy import update
from weights_fixtures import NobodyAsked

from engine.jobs.ledger import Lease, LeaseLost
from engine.ports import ModelFiles, Scorer, TrainedModel
from engine.stages.judge import judge
from engine.store.blobs import sha256_of
from engine.store.evidence import unpack
from engine.store.predictions import read
from engine.store.tables.labels import GoldenSet
from engine.store.tables.models import GateReport, GoldenEvidence, SeedNoise
from engine.store.tables.recordings import Clip

Weights = Callable[..., TrainedModel]
GOLDEN, POOL = range(100, 108), range(6)


@pytest.fixture
def golden(loop: Loop) -> uuid.UUID:
    """A golden set of eight drives, half of them by night; and a dataset version that the baseline learns from."""
    loop.labelled_drives(POOL)
    loop.labelled_drives(GOLDEN, "golden")
    loop.freeze()
    return loop.freeze_golden().id


def repeats(loop: Loop, trained: Weights, scorer: Scorer, golden: uuid.UUID, seeds: tuple[int, ...] = (1, 2)) -> None:
    """Runs that differ in their seed alone, trained and looked at: they measure the noise."""
    frozen = loop.freeze()
    for seed in seeds:
        run_id = loop.start_run(frozen.id, seed=seed, purpose="noise", start="scratch")
        assert loop.judge(scorer, loop.register(trained(60, seed), run_id=run_id), golden) is None


def rows(report: GateReport) -> dict[str, dict[str, Any]]:
    return {row["head"]: row for row in report.report["rows"] if row["slice"] is None}


def test_a_first_champion_has_to_beat_the_dumb_baseline(
    loop: Loop, golden: uuid.UUID, trained: Weights, scorer: Scorer
) -> None:
    good = loop.register(trained(60))
    report = loop.judge(scorer, good, golden)
    assert report is not None
    assert (report.verdict, report.reasons, report.champion_id, report.golden_look) == ("passed", [], None, 1)
    assert {row["rule"] for row in rows(report).values()} == {"floor"}
    assert {row["reference_name"] for row in rows(report).values()} == {"dumb baseline"}
    assert rows(report)["road"]["challenger"] > 0.9 > 0.75 > rows(report)["road"]["reference"]
    assert {row["slice"] for row in report.report["rows"] if row["slice"]} == {"time_of_day=day", "time_of_day=night"}
    (promote,) = loop.jobs("promote", "due")
    assert promote.subject_id == report.id

    half = loop.judge(scorer, loop.register(trained(30)), golden)  # it knows the road, and not the light
    assert half is not None
    assert half.verdict == "refused"
    assert ["head 'light'" in reason for reason in half.reasons] == [True]
    assert len(loop.jobs("promote")) == 1


@pytest.mark.parametrize("spoiled", ["random weights", "shuffled labels", "not finite"])
def test_a_spoiled_model_is_refused(
    loop: Loop, golden: uuid.UUID, trained: Weights, scorer: Scorer, tmp_path: Path, spoiled: str
) -> None:
    loop.crown(loop.register(trained(30), judged=True), golden)
    repeats(loop, trained, scorer, golden)
    model = {
        "random weights": lambda: trained(0),
        "shuffled labels": lambda: trained(60, shuffled=True),
        "not finite": lambda: broken(trained(60), tmp_path),
    }[spoiled]()
    report = loop.judge(scorer, loop.register(model), golden, target_heads=["light"])
    assert report is not None
    assert report.verdict == "refused"
    assert any("head 'road'" in reason for reason in report.reasons)
    assert loop.jobs("promote") == []


def broken(model: TrainedModel, folder: Path) -> TrainedModel:
    """The same weights after a training that went to NaN in the mask's last layer."""
    tensors = load_file(model.files.weights)
    name = next(name for name in tensors if name.startswith("heads.road.") and name.endswith("out.bias"))
    tensors[name] = tensors[name] * float("nan")
    save_file(tensors, folder / "broken.safetensors")
    return replace(model, files=ModelFiles(model.files.format, folder / "broken.safetensors", model.files.config))


def test_margins_are_measured_noise_and_without_them_a_challenger_is_refused(
    loop: Loop, golden: uuid.UUID, trained: Weights, scorer: Scorer
) -> None:
    loop.crown(loop.register(trained(30), judged=True), golden)
    challenger = loop.register(trained(60))
    unproven = loop.judge(scorer, challenger, golden, target_heads=["light"])
    assert unproven is not None
    assert unproven.verdict == "refused"
    assert ["noise between seeds was not measured" in reason for reason in unproven.reasons] == [True]
    assert loop.count(SeedNoise) == 0

    repeats(loop, trained, scorer, golden)
    assert loop.count(GateReport) == 2  # of the crowning and of the challenger: a repeat gets none of its own
    noise = {row.head: row for row in loop.all(SeedNoise)}
    assert set(noise) == {"road", "light"}
    metrics = {str(e.model_version_id): e.metrics for e in loop.all(GoldenEvidence)}
    for head, row in noise.items():
        assert row.values == [[metrics[model][head] for model in row.model_version_ids]]
        assert len(row.model_version_ids) == 2

    proven = loop.judge(scorer, challenger, golden, target_heads=["light"])
    assert proven is not None
    assert (proven.verdict, proven.reasons) == ("passed", [])
    assert rows(proven)["light"]["rule"] == "superiority"
    assert rows(proven)["road"]["rule"] == "non_inferiority"
    assert rows(proven)["road"]["bound"] < 0


def test_a_second_judgement_is_arithmetic_over_the_record(
    loop: Loop, golden: uuid.UUID, trained: Weights, scorer: Scorer
) -> None:
    model = loop.register(trained(60))
    first = loop.judge(scorer, model, golden)
    reference = loop.model(model).score_reference
    second = loop.judge(NobodyAsked(), model, golden)
    assert first is not None
    assert second is not None
    assert second.report == first.report
    assert [r.golden_look for r in loop.all(GateReport)] == [1, 2]
    assert [s.looks for s in loop.all(GoldenSet)] == [2]
    assert loop.count(GoldenEvidence) == 1
    assert loop.model(model).score_reference == reference


def test_the_record_holds_statistics_predictions_and_the_fixed_reference(
    loop: Loop, golden: uuid.UUID, trained: Weights, scorer: Scorer
) -> None:
    model = loop.register(trained(60))
    loop.judge(scorer, model, golden)
    (evidence,) = loop.all(GoldenEvidence)
    with loop.database.read() as session:
        statistics = unpack(loop.blobs.read(sha256_of(session, evidence.statistics_blob_id)))
        predictions = read(loop.blobs.read(sha256_of(session, evidence.predictions_blob_id)))
    assert {head: len(known) for head, known in statistics.items()} == {"road": 16, "light": 16}
    assert len(predictions) == 32
    assert evidence.weights_sha256 == loop.model(model).weights_sha256
    reference = loop.model(model).score_reference
    assert reference is not None
    for head, knots in reference.items():
        raw = [p.uncertainty for p in predictions if p.head == head]
        assert (knots[0], knots[-1]) == (min(raw), max(raw))
        assert knots == sorted(knots)


def test_a_clip_whose_clock_is_wrong_stands_in_no_slice_of_time(loop: Loop, trained: Weights, scorer: Scorer) -> None:
    loop.labelled_drives(POOL)
    for seed in GOLDEN:
        loop.label(loop.add_clip(seed, "golden", tags={"weather": "fog"}))
    loop.freeze()
    golden, model = loop.freeze_golden().id, loop.register(trained(60))

    def subjects_by_slice() -> dict[str, int]:
        report = loop.judge(scorer, model, golden)
        assert report is not None
        return {
            row["slice"]: row["subjects"] for row in report.report["rows"] if row["head"] == "road" and row["slice"]
        }

    right = subjects_by_slice()
    assert set(right) == {"time_of_day=day", "time_of_day=night", "weather=fog"}
    with loop.database.unit() as unit:
        nights = (Clip.split == "golden") & (Clip.tags["time_of_day"].astext == "night")
        unit.session.execute(update(Clip).where(nights).values(clock_suspect=True))
        unit.commit()
    assert subjects_by_slice() == {name: count for name, count in right.items() if name != "time_of_day=night"}


def test_a_head_without_a_golden_label_refuses(
    make_loop: Callable[..., Loop], trained: Weights, scorer: Scorer
) -> None:
    loop = make_loop(ROAD, LIGHT)
    loop.labelled_drives(POOL)
    for clip in [loop.add_clip(seed, "golden") for seed in GOLDEN]:
        loop.label(clip, heads=["road"])
    loop.freeze()
    report = loop.judge(scorer, loop.register(trained(60)), loop.freeze_golden().id)
    assert report is not None
    assert report.verdict == "refused"
    assert report.reasons == ["head 'light': the golden set has no label for it"]


def test_a_model_that_lacks_a_head_of_the_line_is_refused(
    make_loop: Callable[..., Loop], trained: Weights, scorer: Scorer
) -> None:
    loop = make_loop(ROAD, LIGHT, DEPTH)
    loop.labelled_drives(POOL)
    loop.labelled_drives(GOLDEN, "golden")
    loop.freeze()
    model = loop.register(trained(60), heads=["road", "light"])
    report = loop.judge(scorer, model, loop.freeze_golden().id)
    assert report is not None
    assert [reason.split(":")[0] for reason in report.reasons] == ["head 'depth'"]
    assert "was not judged on it" in report.reasons[0]


def test_a_waiver_lets_one_drive_do_and_stands_on_the_report(
    make_loop: Callable[..., Loop], trained: Weights, scorer: Scorer
) -> None:
    loop = make_loop(gate={**SETTINGS["gate"], "min_clips": 4})
    loop.labelled_drives(POOL)
    for seed in (100, 101):  # two drives, where six are asked for
        for number in range(5):
            loop.label(loop.add_clip(seed, "golden", number=number))
    loop.freeze()
    golden, model = loop.freeze_golden().id, loop.register(trained(60))
    plain = loop.judge(scorer, model, golden)
    assert plain is not None
    assert plain.verdict == "refused"
    assert "come from 2 split groups, 6 are needed" in plain.reasons[0]
    assert plain.waiver is None
    waivers = [{"name": "within_one_drive", "by": "Ada", "why": "there is no other recording yet"}]
    waived = loop.judge(scorer, model, golden, waivers=waivers)
    assert waived is not None
    assert (waived.verdict, waived.reasons, waived.waiver) == ("passed", [], {"waivers": waivers})
    assert waived.report["scope"] == "within one drive"
    said = [reason["text"] for reason in waived.report["reasons"]]
    assert any("waived by Ada: there is no other recording yet" in text for text in said)


def test_without_training_labels_there_is_no_baseline_and_a_first_champion_is_refused(
    loop: Loop, trained: Weights, scorer: Scorer
) -> None:
    loop.labelled_drives(GOLDEN, "golden")
    report = loop.judge(scorer, loop.register(trained(60)), loop.freeze_golden().id)
    assert report is not None
    assert report.verdict == "refused"
    assert all("dumb baseline" in reason for reason in report.reasons)


def test_targets_are_those_that_the_run_declared_whatever_is_asked_later(
    loop: Loop, golden: uuid.UUID, trained: Weights, scorer: Scorer
) -> None:
    run_id = loop.start_run(loop.freeze().id, target_heads=["light"])
    report = loop.judge(scorer, loop.register(trained(60), run_id=run_id), golden, target_heads=["road"])
    assert report is not None
    assert report.target_heads == ["light"]


def test_a_line_may_keep_promotion_for_people(make_loop: Callable[..., Loop], trained: Weights, scorer: Scorer) -> None:
    loop = make_loop(auto_promote=False)
    loop.labelled_drives(POOL)
    loop.labelled_drives(GOLDEN, "golden")
    loop.freeze()
    report = loop.judge(scorer, loop.register(trained(60)), loop.freeze_golden().id)
    assert report is not None
    assert report.verdict == "passed"
    assert loop.jobs("promote") == []


def test_a_worker_that_lost_its_lease_records_nothing(
    loop: Loop, golden: uuid.UUID, trained: Weights, scorer: Scorer
) -> None:
    model = loop.register(trained(60))
    loop.enqueue("judge", model, {"golden_set_id": str(golden)})
    lease = loop.claim("judge")
    loop.take_away(lease)
    with pytest.raises(LeaseLost):
        judge(loop.database, loop.blobs, loop.reader, scorer, lease)
    assert [loop.count(table) for table in (GateReport, GoldenEvidence, SeedNoise)] == [0, 0, 0]
    assert loop.model(model).score_reference is None
    assert [s.looks for s in loop.all(GoldenSet)] == [0]


def test_repeats_that_are_looked_at_at_once_are_both_counted(
    loop: Loop, golden: uuid.UUID, trained: Weights, scorer: Scorer
) -> None:
    frozen = loop.freeze()
    models = [
        loop.register(trained(60, seed), run_id=loop.start_run(frozen.id, seed=seed, purpose="noise"))
        for seed in (1, 2)
    ]
    for model in models:
        loop.enqueue("judge", model, {"golden_set_id": str(golden)})
    leases = [loop.claim("judge"), loop.claim("judge")]
    start = threading.Barrier(2)
    outcomes: list[object] = []

    def work(lease: Lease) -> None:
        start.wait()
        outcomes.append(judge(loop.database, loop.blobs, loop.reader, scorer, lease))

    threads = [threading.Thread(target=work, args=(lease,)) for lease in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert outcomes == [None, None]
    assert {tuple(sorted(row.model_version_ids)) for row in loop.all(SeedNoise)} == {tuple(sorted(map(str, models)))}
