"""Brings recordings that are files on this machine in through the public API, as a vehicle would send them."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.adapters.formats import camvid
from engine.adapters.formats.camvid import CamVidClip, CamVidDrive
from engine.adapters.video.encode import encode_clip
from services.uplink import Acknowledged, Uplink, label_document

STREAM = "front"
UNKNOWN_TIME_NS = 1_577_836_800 * 10**9  # 2020-01-01: a file says nothing of when it was taken
CAMVID_LICENCE = "CC-BY-NC-4.0"


@dataclass(frozen=True)
class SentClip:
    """A CamVid clip that the engine has, with its id there."""

    id: str
    clip: CamVidClip
    split: str


def send_file(uplink: Uplink, path: Path, vehicle: str, drive: str | None, licence: str) -> Acknowledged:
    """Send one video file as a clip; its external id is its content's, so that the same file again is a replay."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        manifest = _manifest(
            vehicle=vehicle,
            platform="file",
            drive=drive or f"{path.stem}-{digest[:8]}",
            split="pool",
            external_id=f"{path.stem}-{digest[:16]}",
            start_ns=UNKNOWN_TIME_NS,
            sha256=digest,
            licence=licence,
            tags={"file": path.name},
        )
        return uplink.send_clip(manifest, {STREAM: file})


def camvid_drives(folder: Path, wanted: Sequence[str] | None = None) -> list[CamVidDrive]:
    """The folder's drives, or the wanted; `0016E5-15hz` names the drive that it is a piece of. Raises CamVidError."""
    drives = {drive.external_id: drive for drive in camvid.read_drives(folder)}
    if wanted is None:
        return list(drives.values())
    names = list(dict.fromkeys(name.removesuffix("-15hz") for name in wanted))
    for name in names:
        if name not in drives:
            raise camvid.CamVidError(f"{folder} has no drive {name!r}; it has {', '.join(drives)}")
    return [drives[name] for name in names]


def send_camvid_clip(uplink: Uplink, clip: CamVidClip, split: str) -> SentClip:
    """Encode and send one clip. The same pictures give the same bytes, so it can be sent again."""
    with _encoded(clip) as path:
        content = path.read_bytes()
    manifest = _manifest(
        vehicle="camvid",
        platform="camvid",
        drive=clip.drive,
        split=split,
        external_id=clip.external_id,
        start_ns=clip.start_ns,
        sha256=hashlib.sha256(content).hexdigest(),
        licence=CAMVID_LICENCE,
        tags={"time_of_day": "dusk" if clip.drive == "0001TP" else "day"},
    )
    return SentClip(uplink.send_clip(manifest, {STREAM: content}).id, clip, split)


def send_camvid_labels(uplink: Uplink, sent: SentClip) -> int:
    """Import the labels of a clip's masks; returns of how many frames."""
    ontology = camvid.camvid_ontology()
    labels = list(sent.clip.labels())
    documents = [
        label_document(sent.id, STREAM, pts, head, answer)
        for pts, answers in labels
        for head, answer in answers.items()
    ]
    uplink.send_labels({"name": ontology.name, "version": ontology.version}, "import", documents)
    return len(labels)


@contextmanager
def _encoded(clip: CamVidClip) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        encode_clip(path, clip.pictures(), camvid.TIME_BASE)
        yield path


def _manifest(
    *,
    vehicle: str,
    platform: str,
    drive: str,
    split: str,
    external_id: str,
    start_ns: int,
    sha256: str,
    licence: str,
    tags: Mapping[str, str],
) -> dict[str, Any]:
    return {
        "vehicle": {"external_id": vehicle, "platform": platform},
        "drive": {"external_id": drive, "split": split},
        "external_id": external_id,
        "start_ns": start_ns,
        "clock_source": "unknown",
        "clock_error_ns": None,
        "onboard": {"model_version": None, "software": None},
        "streams": [{"name": STREAM, "kind": "camera", "sha256": sha256, "start_offset_ns": 0, "calibration": None}],
        "telemetry": [],
        "events": [],
        "tags": dict(tags),
        "licence": licence,
        "allowed_purposes": ["training", "evaluation"],
        "region": None,
        "retain_until": None,
    }
