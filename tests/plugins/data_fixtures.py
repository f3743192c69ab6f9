"""Real driving data, which is not part of the repository: its licences don't allow it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets: LONGTAIL_TEST_DATA, else `shared/data` beside the checkout."""
    chosen = os.environ.get("LONGTAIL_TEST_DATA")
    folder = Path(chosen) if chosen else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"REAL DATA IS MISSING, so this was not tested: no folder {folder} (set LONGTAIL_TEST_DATA)")
    return folder


@pytest.fixture(scope="session")
def camvid(real_data: Path) -> Path:
    """The CamVid sequences, each a folder with `images` and `labels`."""
    return _part(real_data, "camvid")


@pytest.fixture(scope="session")
def highway_video(real_data: Path) -> Path:
    """A real H.264 clip of a motorway."""
    return _part(real_data, "video/highway-white-lane.mp4")


def _part(folder: Path, name: str) -> Path:
    if not (folder / name).exists():
        pytest.skip(f"REAL DATA IS MISSING, so this was not tested: no {folder / name}")
    return folder / name
