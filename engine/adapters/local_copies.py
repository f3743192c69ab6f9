"""Copies that a machine keeps in its data folder: small pictures for the pages, and what runs were laid out in."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path


class DataFolderCopies:
    """`engine.ports.LocalCopies` in a data folder: `cache/pictures/REDACTOR/ab/FRAME-WIDTH.jpg` and `runs/RUN`."""

    def __init__(self, data_dir: Path) -> None:
        self._pictures = data_dir / "cache" / "pictures"
        self._runs = data_dir / "runs"

    def picture(self, frame_id: uuid.UUID, width: int, redactor: str) -> Path:
        """Where a frame's picture of this width is kept. By the redactor: what one lets through, another may not."""
        return self._pictures / redactor / frame_id.hex[:2] / f"{frame_id.hex}-{width}.jpg"

    def run_folder(self, run_id: uuid.UUID) -> Path:
        """Where a run is laid out; another attempt on this machine goes on from the checkpoints in it."""
        return self._runs / str(run_id)

    def keep_picture(self, path: Path, content: bytes) -> None:
        """Keep it whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
        unfinished.write_bytes(content)
        unfinished.replace(path)

    def frames(self) -> Iterator[uuid.UUID]:
        """The frames of which there are pictures; one that has several comes several times."""
        for path in self._pictures.glob("*/*/*-*.jpg*"):
            yield uuid.UUID(path.name.partition("-")[0])

    def runs(self) -> Iterator[uuid.UUID]:
        """The runs that have a folder."""
        for path in self._runs.glob("*"):
            try:
                yield uuid.UUID(path.name)
            except ValueError:
                continue

    def forget_frames(self, frame_ids: Iterable[uuid.UUID]) -> int:
        """Remove the pictures of these frames, half written ones too; returns how many there were."""
        gone = 0
        redactors = list(self._pictures.glob("*"))
        for frame_id in frame_ids:
            for redactor in redactors:
                for path in (redactor / frame_id.hex[:2]).glob(f"{frame_id.hex}-*"):
                    path.unlink(missing_ok=True)
                    gone += 1
        return gone

    def forget_run(self, run_id: uuid.UUID) -> bool:
        """Remove the run's folder; returns whether there was one."""
        folder = self.run_folder(run_id)
        there = folder.is_dir()
        shutil.rmtree(folder, ignore_errors=True)
        return there
