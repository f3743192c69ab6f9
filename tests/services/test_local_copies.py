"""Copies on a machine that was off while something was erased go when it starts."""

from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from erasure_fixtures import Eraser
from loop_fixtures import Loop

from engine.adapters.local_copies import DataFolderCopies
from engine.store.tables.recordings import Frame
from services.api.app import make_app
from services.settings import Settings


def test_pictures_of_erased_frames_go_when_the_api_starts(
    loop: Loop, eraser: Eraser, database_url: str, tmp_path: Path
) -> None:
    gone, kept = loop.labelled_drives([7001, 7002])
    settings = Settings(data_dir=tmp_path / "elsewhere", database_url=database_url, signing_secret="of the tests")
    copies = DataFolderCopies(settings.data_dir)
    paths = {}
    for clip in (gone, kept):
        frame = loop.all(Frame, Frame.clip_id == clip)[0].id
        paths[clip] = [copies.picture(frame, width, "NoRedaction") for width in (640, 1920)]
        for path in paths[clip]:
            copies.keep_picture(path, b"a picture")
    eraser.erase(clip=gone)
    assert paths[gone][0].is_file()

    async def start() -> None:
        served = make_app(settings)
        async with served.router.lifespan_context(served):
            pass

    with ThreadPoolExecutor(1) as thread:  # this one may have an event loop already: a browser's
        thread.submit(lambda: asyncio.run(start())).result()
    assert [path.is_file() for path in paths[gone]] == [False, False]
    assert [path.is_file() for path in paths[kept]] == [True, True]


def test_a_runs_folder_is_found_and_forgotten(tmp_path: Path) -> None:
    copies, run = DataFolderCopies(tmp_path), uuid.uuid4()
    assert not copies.forget_run(run)
    copies.run_folder(run).mkdir(parents=True)
    (tmp_path / "runs" / "no run").mkdir()
    assert list(copies.runs()) == [run]
    assert copies.forget_run(run)
    assert list(copies.runs()) == []
