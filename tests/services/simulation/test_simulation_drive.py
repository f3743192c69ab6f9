"""Drives: plans from a seed, the tail's shares, media whose PTS are the plan's, manifests, and looked-up truths."""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter

import av
import numpy as np
import pytest

from services.simulation import drive as drives
from services.simulation.drive import STREAM, TAILS, Tail, TruthBook, plan_drives


def test_plans_repeat_and_other_seeds_share_nothing() -> None:
    first = plan_drives(3, 20)
    assert first == plan_drives(3, 20)
    ids = {clip.external_id for drive in first for clip in drive.clips}
    others = {clip.external_id for drive in plan_drives(4, 20) for clip in drive.clips}
    assert len(ids) == sum(len(drive.clips) for drive in first)
    assert not ids & others
    assert {len(drive.clips) for drive in first} == {1, 2, 3}


@pytest.mark.parametrize("name", sorted(TAILS))
def test_tail_has_its_shares_even_in_small_sets(name: str) -> None:
    tail = TAILS[name]
    for count in (40, 200):
        settings = [drive.setting for drive in plan_drives(11, count, name)]
        met = {
            "night": sum(s.time_of_day == "night" for s in settings),
            "dusk": sum(s.time_of_day == "dusk" for s in settings),
            "fog": sum(s.fog for s in settings),
            "rural": sum(s.road_kind == "rural" for s in settings),
            "urban": sum(s.road_kind == "urban" for s in settings),
            "truck_drives": sum(s.trucks > 0 for s in settings),
            "people": sum(s.people > 0 for s in settings),
            "hard_brake": sum(s.hard_brake for s in settings),
        }
        for what, number in met.items():
            assert abs(number - getattr(tail, what) * count) <= 1, what


def test_most_of_a_natural_fleet_is_plain_daylight_and_easy_has_no_tail() -> None:
    natural = [drive.setting for drive in plan_drives(2, 100)]
    plain = sum(s.time_of_day == "day" and not s.fog and s.trucks == 0 and s.people == 0 for s in natural)
    assert plain > 50
    assert Counter(s.road_kind for s in natural).most_common(1)[0][0] == "highway"
    for setting in (drive.setting for drive in plan_drives(2, 100, "easy")):
        assert setting.time_of_day == "day"
        assert (setting.fog, setting.trucks, setting.decoys, setting.rare_sign) == (False, 0, 0, 0)


def test_rare_class_stays_rare_in_a_natural_fleet() -> None:
    labels: Counter[str] = Counter()
    for drive in plan_drives(8, 150, clips=1):
        labels.update(m.label for m in drives.world(drive, drive.clips[0]).movers if m.head == "signs" and m.label)
    share = labels["railway_crossing"] / labels.total()
    assert labels.total() > 400
    assert 0 < share <= 0.025


def test_unknown_tail_is_refused() -> None:
    with pytest.raises(ValueError, match="easy"):
        plan_drives(1, 1, "impossible")


@pytest.mark.parametrize("fps", [5, 10])
def test_decoded_pts_are_exactly_the_plans(fps: int) -> None:
    drive = plan_drives(21, 1, "easy", clips=1, fps=fps)[0]
    clip = drive.clips[0]
    assert len(clip.pts) == 2 * fps
    with av.open(io.BytesIO(drives.encode(drive, clip))) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert stream.codec_context.pix_fmt == "yuv420p"
        assert (stream.time_base.numerator, stream.time_base.denominator) == (1, drives.TIME_BASE_HZ)
        frames = [(frame.pts, frame.key_frame, frame.to_ndarray(format="rgb24")) for frame in container.decode(stream)]
    assert tuple(pts for pts, _, _ in frames) == clip.pts
    assert [key for _, key, _ in frames] == [number % 10 == 0 for number in range(len(frames))]
    for pts, _, rgb in frames[:: len(frames) - 1]:
        off = rgb.astype(int) - drives.film(drive, clip, pts).rgb
        assert np.abs(off).mean() < 9
        assert np.abs(off.mean(axis=(0, 1))).max() < 3, "no colour shifts on the way"


def test_encoding_twice_gives_the_same_bytes() -> None:
    drive = plan_drives(22, 1, clips=1)[0]
    assert drives.encode(drive, drive.clips[0]) == drives.encode(drive, drive.clips[0])


def test_manifest_is_whole_and_json() -> None:
    drive = plan_drives(23, 4, split="golden")[2]
    clip = drive.clips[0]
    media = b"media"
    document = json.loads(json.dumps(drives.manifest(drive, clip, media, model_version="m-1")))
    assert document["drive"] == {"external_id": drive.external_id, "split_group": drive.external_id, "split": "golden"}
    assert document["vehicle"] == {"external_id": drive.vehicle, "platform": "sim"}
    assert document["external_id"] == clip.external_id
    assert document["onboard"] == {"model_version": "m-1", "software": "sim-1"}
    stream = document["streams"][0]
    assert (stream["name"], stream["sha256"]) == (STREAM, hashlib.sha256(media).hexdigest())
    transform = np.array(stream["calibration"]["vehicle_from_sensor"])
    assert transform.shape == (4, 4)
    assert transform[:3, :3] @ transform[:3, :3].T == pytest.approx(np.eye(3), abs=1e-5)
    times = [sample["t_ns"] for sample in document["telemetry"]]
    assert times[0] == document["start_ns"]
    assert times == sorted(times)
    assert document["tags"]["time_of_day"] == drive.setting.time_of_day
    assert set(document["allowed_purposes"]) == {"training", "evaluation"}


def test_hard_brakes_are_events_where_the_speed_falls() -> None:
    braking = plan_drives(24, 6, Tail(hard_brake=1.0), clips=1)
    calm = plan_drives(24, 6, Tail(), clips=1)
    for drive in braking:
        document = drives.manifest(drive, drive.clips[0], b"")
        assert [event["name"] for event in document["events"]] == ["hard_brake"]
        assert document["telemetry"][-1]["speed_mps"] < document["telemetry"][0]["speed_mps"] - 4
    assert all(drives.manifest(drive, drive.clips[0], b"")["events"] == [] for drive in calm)


def test_vehicles_never_drive_through_the_one_ahead() -> None:
    for drive in plan_drives(25, 30, "boosted", clips=1):
        world = drives.world(drive, drive.clips[0])
        for t in (0.0, 1.0, 2.0):
            s, _, _ = world.ego.at(t)
            ahead = [m for m in world.movers if m.lane is not None and m.lane == world.ego.lane]
            assert all(m.at(t)[0] - m.parts[-1].size[0] / 2 - s > 3 for m in ahead)


def test_truth_book_finds_the_frame_by_external_ids() -> None:
    planned = plan_drives(26, 3)
    drive = planned[1]
    clip = drive.clips[-1]
    book = TruthBook(planned)
    ids = {"drive_external_id": drive.external_id, "clip_external_id": clip.external_id, "pts": str(clip.pts[4])}
    expected = drives.truth(drive, clip, clip.pts[4])
    assert book.truth_for({"key": "k", **ids}) == expected
    assert book.truth_for({"key": "k", "meta": ids}) == expected
    assert book.truth_for({"key": "k", "meta": {**ids, "drive_external_id": "another"}}) is None
    with pytest.raises(KeyError, match="PTS"):
        drives.truth(drive, clip, clip.pts[4] + 1)


def test_lidar_has_gaps_and_noise_around_the_truth() -> None:
    drive = plan_drives(27, 1, "easy", clips=1)[0]
    clip = drive.clips[0]
    exact, measured = (
        np.load(io.BytesIO(answer.array or b"")).astype(np.float64)
        for answer in (drives.truth(drive, clip, clip.pts[1])["depth"], drives.lidar_depth(drive, clip, clip.pts[1]))
    )
    reach = exact < 115
    returned = np.isfinite(measured) & reach
    assert 0.17 < 1 - returned.sum() / reach.sum() < 0.23
    assert np.isnan(measured[np.isnan(exact)]).all()
    error = measured[returned] / exact[returned] - 1
    assert abs(error.mean()) < 1e-3
    assert 0.008 < error.std() < 0.012
    assert drives.lidar_depth(drive, clip, clip.pts[1]) == drives.lidar_depth(drive, clip, clip.pts[1])
