"""What the sender says of a clip, checked and in one form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

EARLIEST_NS = 1_420_070_400_000_000_000  # 2015-01-01; a clock that never met a time source starts at 1970 or 2000
FUTURE_NS = 2 * 86_400 * 1_000_000_000
FPS_TOLERANCE = 0.1  # a nominal rate is not met to the frame, and cameras drop some
# Tags that are read off a clock. Where it is wrong they say nothing, whoever wrote them.
CLOCK_TAGS = frozenset({"time_of_day", "hour", "weekday", "date", "month", "season", "year"})


@dataclass(frozen=True)
class SensorCalibration:
    """How a camera projects and where it sits: `vehicle_from_sensor` is 4x4, row-major, metres."""

    camera_model: str
    intrinsics: Mapping[str, Any]
    vehicle_from_sensor: tuple[tuple[float, ...], ...]
    shutter: str

    @property
    def digest(self) -> str:
        """Equal calibrations have equal digests, whoever sends them."""
        return digest(
            {
                "camera_model": self.camera_model,
                "intrinsics": dict(self.intrinsics),
                "vehicle_from_sensor": [list(row) for row in self.vehicle_from_sensor],
                "shutter": self.shutter,
            }
        )


@dataclass(frozen=True)
class StreamManifest:
    """One stream as announced; its first frame was taken `start_offset_ns` after the clip's start."""

    name: str
    kind: str
    sha256: str | None
    start_offset_ns: int
    calibration: SensorCalibration | None
    codec: str | None = None
    width: int | None = None
    height: int | None = None
    fps: float | None = None

    def disagreement(self, codec: str, width: int, height: int, fps: float | None) -> str | None:
        """What is announced otherwise than the media has it, in words; None where all agrees or nothing was announced.

        `fps` is what the frames' times come to, None for a single frame.
        """
        pairs = (("codec", self.codec, codec), ("width", self.width, width), ("height", self.height, height))
        for name, announced, found in pairs:
            if announced is not None and announced != found:
                return f"{name} {announced} was announced, the media has {found}"
        if self.fps is not None and fps is not None and abs(self.fps - fps) > FPS_TOLERANCE * fps:
            return f"{self.fps:g} frames a second were announced, the media has {fps:.4g}"
        return None


@dataclass(frozen=True)
class ClipManifest:
    """A clip as announced. `split` is None where the sender left it to us."""

    vehicle: str
    platform: str
    drive: str
    split_group: str
    split: str | None
    external_id: str
    start_ns: int
    clock_source: str
    clock_error_ns: int | None
    streams: tuple[StreamManifest, ...]
    licence: str
    allowed_purposes: tuple[str, ...]
    onboard_model_version: str | None = None
    onboard_software: str | None = None
    region: str | None = None
    retain_until: datetime | None = None
    tags: Mapping[str, Any] = field(default_factory=dict)
    telemetry: tuple[Mapping[str, Any], ...] = ()
    events: tuple[Mapping[str, Any], ...] = ()
    document: Mapping[str, Any] = field(default_factory=dict)
    """The whole manifest as it was sent, in JSON types, without what only repeats a default."""

    def content_digest(self, stream_sha256: Mapping[str, str]) -> str:
        """Over the manifest and the streams' bytes, so two deliveries agree, whether hashes were declared or not."""
        document = {key: value for key, value in self.document.items() if key != "streams"}
        streams = [
            {
                **{key: value for key, value in stream.items() if key != "sha256"},
                "sha256": stream_sha256[stream["name"]],
            }
            for stream in self.document["streams"]
        ]
        return digest({**document, "streams": streams})

    def clock_is_suspect(self, now_ns: int) -> bool:
        """Whether the clip's clock is so far off that its times mean nothing.

        It is when it stands before 2015 or over two days ahead of ours, or when the sender says that it may be off by
        more than that.
        """
        return (
            self.start_ns < EARLIEST_NS
            or self.start_ns > now_ns + FUTURE_NS
            or (self.clock_error_ns is not None and self.clock_error_ns > FUTURE_NS)
        )


def digest(document: Mapping[str, Any]) -> str:
    """SHA-256 over canonical JSON: sorted keys, no spaces, no NaN."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def capture_ns(
    start_ns: int, start_offset_ns: int, pts: int, first_pts: int, time_base_num: int, time_base_den: int
) -> int:
    """When the frame at `pts` was taken: PTS count from the stream's first frame, in units of its time base."""
    return start_ns + start_offset_ns + (pts - first_pts) * time_base_num * 1_000_000_000 // time_base_den
