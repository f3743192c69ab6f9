"""Small videos of our own, whose frames can be told apart: frame i is one grey, LEVELS[i]."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest

from engine.adapters.video.encode import encode_clip
from engine.adapters.video.limits import MediaLimits
from engine.adapters.video.pool import MediaPool
from engine.ports import Picture

WriteVideo = Callable[..., Path]


def grey(pts: int, level: int, width: int = 64, height: int = 48) -> Picture:
    return Picture(pts=pts, width=width, height=height, rgb=bytes([level]) * (width * height * 3))


def level_of(number: int) -> int:
    """Far enough from its neighbours' that lossy coding can't take one for another."""
    return 20 + (number * 37) % 200


@pytest.fixture
def write_video(tmp_path: Path) -> WriteVideo:
    """Write an H.264 MP4 of grey frames at the given PTS (in 1/30 s by default)."""

    def write(
        pts: list[int] | range,
        name: str = "clip.mp4",
        time_base: Fraction = Fraction(1, 30),
        size: tuple[int, int] = (64, 48),
        **how: int,
    ) -> Path:
        pictures = (grey(value, level_of(number), *size) for number, value in enumerate(pts))
        encode_clip(tmp_path / name, pictures, time_base, **how)  # type: ignore[arg-type]
        return tmp_path / name

    return write


@pytest.fixture(scope="module")
def pool() -> Iterator[MediaPool]:
    pool = MediaPool(MediaLimits(wall_s=20))
    yield pool
    pool.close()
