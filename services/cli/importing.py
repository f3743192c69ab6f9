"""What `longtail ingest` and `longtail import` do, with progress."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import track

from engine.adapters.formats.camvid import camvid_ontology
from engine.domain.refusals import NotAllowed
from engine.stages.register import ensure_line
from engine.store.lines import add_ontology
from services.cli.output import err
from services.cli.reach import api_access, ensured_project_id, reached
from services.importing import camvid_drives, send_camvid_clip, send_camvid_labels, send_file
from services.uplink import Uplink


def send_files(files: Sequence[Path], vehicle: str, drive: str | None, licence: str) -> list[dict[str, Any]]:
    """Send each file; what became of each."""
    rows = []
    with _uplink() as uplink:
        for path in track(files, "sending", console=err, transient=True):
            taken = send_file(uplink, path, vehicle, drive, licence)
            rows.append({"file": path.name, "clip": taken.id, "state": "had it already" if taken.replayed else "taken"})
    return rows


def import_camvid(
    path: Path, drives: Sequence[str] | None, golden: Sequence[str], labels: bool
) -> list[dict[str, Any]]:
    """Send each drive's clips and labels; what came of each drive. Makes the ontology and the line `camvid`."""
    wanted = camvid_drives(path, drives)
    golden_names = {drive.external_id for drive in camvid_drives(path, golden)}
    _ensure_camvid_line()
    rows = []
    with _uplink() as uplink:
        for drive in wanted:
            split = "golden" if drive.external_id in golden_names else "pool"
            labelled = 0
            for clip in track(drive.clips, f"sending {drive.external_id}", console=err, transient=True):
                sent = send_camvid_clip(uplink, clip, split)
                if labels:
                    labelled += send_camvid_labels(uplink, sent)
            frames = sum(len(clip.frames) for clip in drive.clips)
            rows.append(
                {
                    "drive": drive.external_id,
                    "split": split,
                    "clips": len(drive.clips),
                    "frames": frames,
                    "labels": labelled,
                }
            )
    return rows


def _ensure_camvid_line() -> None:
    ontology = camvid_ontology()
    with reached() as wiring, wiring.database.unit() as unit:
        project = ensured_project_id(unit.session)
        add_ontology(unit.session, project, ontology)
        ensure_line(unit, project, "camvid", ontology.name, ontology.version, {}, "cli")
        unit.commit()


@contextmanager
def _uplink() -> Iterator[Uplink]:
    url, token = api_access()
    if token is None:
        raise NotAllowed(
            "no-token", "the API wants a token", "set LONGTAIL_API_TOKEN; `longtail tokens create` makes one"
        )
    with Uplink(url, token) as uplink:
        yield uplink
