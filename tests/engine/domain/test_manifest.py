"""What two deliveries of a clip agree in, when a clock is suspect, and when a frame was taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.domain.manifest import (
    EARLIEST_NS,
    FUTURE_NS,
    ClipManifest,
    SensorCalibration,
    StreamManifest,
    capture_ns,
    digest,
)


def manifest(document: dict[str, Any], start_ns: int = EARLIEST_NS) -> ClipManifest:
    return ClipManifest(
        vehicle="v",
        platform="sim",
        drive="d",
        split_group="d",
        split=None,
        external_id="c",
        start_ns=start_ns,
        clock_source="gps",
        clock_error_ns=None,
        streams=(StreamManifest("front", "camera", None, 0, None),),
        licence="CC0-1.0",
        allowed_purposes=("training",),
        document=document,
    )


def test_declaring_a_hash_does_not_change_what_a_clip_is() -> None:
    silent = manifest({"external_id": "c", "streams": [{"name": "front"}]})
    declared = manifest({"streams": [{"sha256": "aa", "name": "front"}], "external_id": "c"})
    assert silent.content_digest({"front": "aa"}) == declared.content_digest({"front": "aa"})
    assert silent.content_digest({"front": "aa"}) != silent.content_digest({"front": "bb"})


NOW_NS = 1_790_000_000_000_000_000


@pytest.mark.parametrize(
    ("start_ns", "suspect"),
    [
        (0, True),
        (EARLIEST_NS - 1, True),
        (EARLIEST_NS, False),
        (NOW_NS, False),
        (NOW_NS + FUTURE_NS, False),
        (NOW_NS + FUTURE_NS + 1, True),
    ],
)
def test_a_clock_that_is_years_off_is_suspect(start_ns: int, suspect: bool) -> None:
    assert manifest({}, start_ns).clock_is_suspect(NOW_NS) is suspect


@pytest.mark.parametrize(
    ("error_ns", "suspect"), [(None, False), (1000, False), (FUTURE_NS, False), (10 * FUTURE_NS, True)]
)
def test_a_clock_that_says_of_itself_that_it_is_off_is_suspect(error_ns: int | None, suspect: bool) -> None:
    assert replace(manifest({}, NOW_NS), clock_error_ns=error_ns).clock_is_suspect(NOW_NS) is suspect


@pytest.mark.parametrize(
    ("announced", "says"),
    [
        ({}, None),
        ({"codec": "h264", "width": 640, "height": 360, "fps": 30.0}, None),
        ({"fps": 27.1}, None),
        ({"fps": 26.9}, "26.9 frames a second were announced, the media has 29.97"),
        ({"codec": "hevc"}, "codec hevc was announced, the media has h264"),
        ({"width": 641}, "width 641 was announced, the media has 640"),
        ({"height": 1}, "height 1 was announced, the media has 360"),
    ],
)
def test_what_is_announced_of_a_stream_must_be_what_the_media_has(announced: dict[str, Any], says: str | None) -> None:
    stream = StreamManifest("front", "camera", None, 0, None, **announced)
    assert stream.disagreement("h264", 640, 360, 29.97) == says


def test_a_single_frame_has_no_rate_to_be_held_against() -> None:
    assert StreamManifest("front", "camera", None, 0, None, fps=30).disagreement("h264", 640, 360, None) is None


def test_capture_counts_from_the_first_frame() -> None:
    assert capture_ns(1000, 5, pts=512, first_pts=512, time_base_num=1, time_base_den=12800) == 1005
    assert capture_ns(0, 0, pts=512 + 12800, first_pts=512, time_base_num=1, time_base_den=12800) == 10**9


def test_equal_calibrations_have_equal_digests() -> None:
    first = SensorCalibration("pinhole", {"fx": 1.0, "fy": 2.0}, ((1.0, 0.0), (0.0, 1.0)), "global")
    same = SensorCalibration("pinhole", {"fy": 2.0, "fx": 1.0}, ((1.0, 0.0), (0.0, 1.0)), "global")
    other = SensorCalibration("fisheye", {"fy": 2.0, "fx": 1.0}, ((1.0, 0.0), (0.0, 1.0)), "global")
    assert first.digest == same.digest != other.digest


def test_digest_takes_no_nan() -> None:
    with pytest.raises(ValueError, match="JSON"):
        digest({"a": float("nan")})
