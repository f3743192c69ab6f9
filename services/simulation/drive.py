"""Drives of the simulated fleet: planned from a seed, filmed, encoded, and described by a clip's manifest.

All of it follows from the plan, so that the truth of any frame can be had later by (drive, clip, PTS) without keeping
a picture.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from engine.domain.answers import Answer
from services.simulation import truth as truths
from services.simulation.camera import Camera
from services.simulation.render import Rendering, render
from services.simulation.world import Setting, World, build_world

STREAM = "front"
TIME_BASE_HZ = 90_000
CLIP_S = 2.0
CLIP_GAP_S = 45
HARD_BRAKE_MPS2 = -3.5
TELEMETRY_HZ = 20
EPOCH = datetime(2025, 3, 3, tzinfo=UTC)
HOUR = {"day": 11, "dusk": 18, "night": 22}
ROAD_SEED, PICK_SEED = 0xD1, 0xD2


@dataclass(frozen=True)
class Tail:
    """How much of the long tail a fleet meets: the difficulty of a set of drives.

    night, dusk, fog, rural, urban, people, decoys and hard_brake are shares of drives; trucks is the share of vehicles
    in drives that meet trucks at all (`truck_drives`); rare_sign is the rare class's share of signs; traffic scales how
    many vehicles there are.
    """

    night: float = 0.0
    dusk: float = 0.0
    fog: float = 0.0
    rural: float = 0.0
    urban: float = 0.0
    truck_drives: float = 0.0
    trucks: float = 0.35
    people: float = 0.0
    decoys: float = 0.0
    hard_brake: float = 0.0
    rare_sign: float = 0.0
    traffic: float = 1.0


TAILS: Mapping[str, Tail] = {
    "easy": Tail(rural=0.25, urban=0.05, people=0.10, traffic=1.3),
    "natural": Tail(
        night=0.10, dusk=0.05, fog=0.05, rural=0.25, urban=0.15, truck_drives=0.12, people=0.15, decoys=0.06,
        hard_brake=0.05, rare_sign=0.01,
    ),
    "boosted": Tail(
        night=0.22, dusk=0.08, fog=0.15, rural=0.30, urban=0.25, truck_drives=0.35, people=0.40, decoys=0.12,
        hard_brake=0.10, rare_sign=0.04, traffic=1.3,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class ClipPlan:
    """One clip of a drive: its seed, start in UTC ns, and the PTS of its frames in 1/90000 s, from 0."""

    external_id: str
    seed: int
    start_ns: int
    pts: tuple[int, ...]


@dataclass(frozen=True)
class Drive:
    """One drive, a split group of its own."""

    external_id: str
    vehicle: str
    split: str
    setting: Setting
    camera: Camera
    clips: tuple[ClipPlan, ...]

    def clip(self, external_id: str) -> ClipPlan:
        for clip in self.clips:
            if clip.external_id == external_id:
                return clip
        raise KeyError(f"drive {self.external_id} has no clip {external_id}")

    @property
    def tags(self) -> dict[str, str]:
        return {
            "weather": "fog" if self.setting.fog else "clear",
            "time_of_day": self.setting.time_of_day,
            "road": self.setting.road_kind,
        }


def plan_drives(
    seed: int,
    count: int,
    tail: Tail | str = "natural",
    *,
    clips: int | None = None,
    fps: int = 5,
    vehicles: int = 12,
    split: str = "pool",
    prefix: str = "d",
    width: int = 192,
    height: int = 96,
) -> list[Drive]:
    """`count` drives of 1 to 3 clips each (or exactly `clips`), the same for the same arguments.

    A share p of the tail is met by floor(p * count) drives or one more, by lot, so that small sets keep their shares.
    Ids carry the prefix and the seed: plans of other seeds never share a drive.
    """
    if isinstance(tail, str):
        if tail not in TAILS:
            raise ValueError(f"no tail {tail!r}; there are {', '.join(TAILS)}, or pass a Tail")
        tail = TAILS[tail]
    rng = np.random.default_rng(np.random.SeedSequence([seed, ROAD_SEED]))
    settings = _settings(rng, count, tail)
    drives = []
    for index, setting in enumerate(settings):
        drive_rng = np.random.default_rng(np.random.SeedSequence([seed, index, PICK_SEED]))
        vehicle = int(drive_rng.integers(vehicles))
        name = f"{prefix}-{seed}-{index:04d}"
        start = EPOCH + timedelta(days=index % 28, hours=HOUR[setting.time_of_day], minutes=int(drive_rng.integers(90)))
        number = int(drive_rng.integers(1, 4))
        planned = []
        for clip in range(clips or number):
            clip_seed, jitter = (int(v) for v in drive_rng.integers(2**31, size=2))
            start_ns = int((start + timedelta(seconds=CLIP_GAP_S * clip)).timestamp()) * 1_000_000_000
            planned.append(ClipPlan(f"{name}-c{clip:02d}", clip_seed, start_ns, _frame_pts(jitter, fps)))
        drives.append(
            Drive(name, f"sim-{vehicle:02d}", split, setting, _mounted(vehicle, width, height), tuple(planned))
        )
    return drives


def world(drive: Drive, clip: ClipPlan) -> World:
    return _world(clip.seed, drive.setting)


def film(drive: Drive, clip: ClipPlan, pts: int) -> Rendering:
    """What the camera saw at a PTS, with the hits behind it; the picture is that before encoding."""
    return render(world(drive, clip).at(pts / TIME_BASE_HZ), drive.camera)


def truth(drive: Drive, clip: ClipPlan, pts: int) -> dict[str, Answer]:
    """The exact answers of a frame by head, `normals` included, from the plan alone."""
    if pts not in clip.pts:
        raise KeyError(f"clip {clip.external_id} has no frame at PTS {pts}")
    return truths.answers(film(drive, clip, pts))


def lidar_depth(
    drive: Drive, clip: ClipPlan, pts: int, *, dropout: float = 0.2, noise: float = 0.01, range_m: float = 120.0
) -> Answer:
    """Depth as a sensor gives it: relative noise, a share of the pixels and all beyond `range_m` without a return."""
    depth = film(drive, clip, pts).depth.copy()
    rng = np.random.default_rng(np.random.SeedSequence([clip.seed, pts, 0x11DA]))
    depth *= 1 + rng.normal(0, noise, depth.shape).astype(np.float32)
    depth[(rng.random(depth.shape) < dropout) | (depth > range_m)] = np.nan
    answer = truths.npy(depth)
    return Answer(truths.driving_ontology().head("depth").kind, {"size": list(depth.shape)}, answer)


def encode(drive: Drive, clip: ClipPlan) -> bytes:
    """The clip as H.264 in MP4, its PTS exactly those of the plan; the same plan gives the same bytes."""
    return encode_pictures(
        ((pts, film(drive, clip, pts).rgb) for pts in clip.pts), drive.camera.width, drive.camera.height
    )


def encode_pictures(pictures: Iterator[tuple[int, NDArray[np.uint8]]], width: int, height: int) -> bytes:
    """(PTS, (H, W, 3) uint8) pairs, ascending, to MP4. No B-frames: with them the container would shift the PTS."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4", options={"fflags": "bitexact"}) as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, TIME_BASE_HZ)
        stream.codec_context.gop_size = 10
        stream.codec_context.thread_count = 1
        stream.options = {"crf": "18", "preset": "veryfast", "bf": "0", "threads": "1"}
        for pts, rgb in pictures:
            frame = av.VideoFrame.from_ndarray(rgb, format="rgb24")
            frame.pts, frame.time_base = pts, stream.time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def manifest(drive: Drive, clip: ClipPlan, media: bytes, *, model_version: str | None = None) -> dict[str, Any]:
    """The manifest that is posted with the clip's media."""
    telemetry = _telemetry(drive, clip)
    return {
        "vehicle": {"external_id": drive.vehicle, "platform": "sim"},
        "drive": {"external_id": drive.external_id, "split_group": drive.external_id, "split": drive.split},
        "external_id": clip.external_id,
        "start_ns": clip.start_ns,
        "clock_source": "gps",
        "clock_error_ns": 1000,
        "onboard": {"model_version": model_version, "software": "sim-1"},
        "streams": [
            {
                "name": STREAM,
                "kind": "camera",
                "sha256": hashlib.sha256(media).hexdigest(),
                "start_offset_ns": 0,
                "calibration": drive.camera.calibration(),
            }
        ],
        "telemetry": telemetry,
        "events": _events(telemetry),
        "tags": drive.tags,
        "licence": "CC0-1.0",
        "allowed_purposes": ["training", "evaluation"],
        "region": None,
        "retain_until": None,
    }


class TruthBook:
    """Looks up the truth of a frame by the external ids of its drive and clip, for those who label simulated frames."""

    def __init__(self, drives: Sequence[Drive]) -> None:
        self._drives = {drive.external_id: drive for drive in drives}

    def truth_for(self, task_data: Mapping[str, Any]) -> dict[str, Answer] | None:
        """The truth of a label tool's task, None when its drive is not one of ours.

        `drive_external_id`, `clip_external_id` and `pts` are looked for in the task's data and in its `meta`.
        """
        meta = task_data.get("meta")
        known = {**(meta if isinstance(meta, Mapping) else {}), **task_data}
        drive = self._drives.get(str(known.get("drive_external_id")))
        if drive is None:
            return None
        return truth(drive, drive.clip(str(known["clip_external_id"])), int(known["pts"]))


@lru_cache(maxsize=64)
def _world(seed: int, setting: Setting) -> World:
    return build_world(seed, setting)


def _settings(rng: np.random.Generator, count: int, tail: Tail) -> list[Setting]:
    def lot(share: float) -> NDArray[np.bool_]:
        """Who of the drives it falls on."""
        chosen = np.zeros(count, dtype=np.bool_)
        chosen[rng.permutation(count)[: int(share * count + rng.random())]] = True
        return chosen

    def split(*shares: float) -> NDArray[np.int64]:
        """0 for the rest, i + 1 for share i, each drive in one of them."""
        ends = np.floor(np.cumsum(shares) * count + rng.random()).astype(int)
        kinds = np.zeros(count, dtype=np.int64)
        order = rng.permutation(count)
        for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            kinds[order[start:end]] = number + 1
        return kinds

    times, roads = split(tail.night, tail.dusk), split(tail.rural, tail.urban)
    lots = {
        field.name: lot(getattr(tail, field.name))
        for field in fields(tail)
        if field.name in ("fog", "truck_drives", "people", "decoys", "hard_brake")
    }
    return [
        Setting(
            road_kind=("highway", "rural", "urban")[roads[index]],
            time_of_day=("day", "night", "dusk")[times[index]],
            fog=bool(lots["fog"][index]),
            traffic=tail.traffic * float(rng.choice([0.25, 0.6, 1.0, 1.6])),
            trucks=tail.trucks if lots["truck_drives"][index] else 0.0,
            people=1.0 if lots["people"][index] else 0.0,
            rare_sign=tail.rare_sign,
            decoys=1.0 if lots["decoys"][index] else 0.0,
            hard_brake=bool(lots["hard_brake"][index]),
        )
        for index in range(count)
    ]


def _mounted(vehicle: int, width: int, height: int) -> Camera:
    """Each vehicle's camera sits a little differently."""
    rng = np.random.default_rng(np.random.SeedSequence([vehicle, 0xCA]))
    camera = Camera(width=width, height=height, focal_px=round(Camera.focal_px * width / Camera.width, 3))
    return replace(
        camera,
        height_m=round(float(rng.uniform(1.35, 1.55)), 3),
        pitch_down_rad=round(float(rng.uniform(0.02, 0.05)), 4),
    )


def _frame_pts(seed: int, fps: int) -> tuple[int, ...]:
    """A frame every 1/fps s, late by up to 3 ms as cameras are."""
    late = np.random.default_rng(seed).integers(0, 270, size=round(CLIP_S * fps))
    late[0] = 0
    return tuple(int(TIME_BASE_HZ * number // fps + delay) for number, delay in enumerate(late))


def _telemetry(drive: Drive, clip: ClipPlan) -> list[dict[str, Any]]:
    scene = world(drive, clip)
    samples = []
    for number in range(round(CLIP_S * TELEMETRY_HZ)):
        speed, yaw_rate = scene.motion(number / TELEMETRY_HZ)
        t_ns = clip.start_ns + number * 1_000_000_000 // TELEMETRY_HZ
        samples.append({"t_ns": t_ns, "speed_mps": round(speed, 4), "yaw_rate_radps": round(yaw_rate, 6)})
    return samples


def _events(telemetry: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A hard brake where the speed first falls faster than the threshold, as a vehicle's own rule would say."""
    for before, after in pairwise(telemetry):
        if (after["speed_mps"] - before["speed_mps"]) * TELEMETRY_HZ < HARD_BRAKE_MPS2:
            return [{"t_ns": after["t_ns"], "name": "hard_brake"}]
    return []
