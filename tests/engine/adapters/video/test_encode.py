from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from engine.adapters.video.encode import encode_clip
from engine.ports import Picture


def grey(pts: int, width: int = 64, height: int = 48) -> Picture:
    return Picture(pts=pts, width=width, height=height, rgb=bytes([90]) * (width * height * 3))


def test_the_same_pictures_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.mp4", "two.mp4"):
        assert encode_clip(tmp_path / name, map(grey, (0, 3, 10)), Fraction(1, 30)) == 3
    assert (tmp_path / "one.mp4").read_bytes() == (tmp_path / "two.mp4").read_bytes()


@pytest.mark.parametrize(
    ("pictures", "time_base", "says"),
    [
        ([], Fraction(1, 30), "at least one picture"),
        ([grey(0), grey(0)], Fraction(1, 30), "must ascend"),
        ([grey(-1)], Fraction(1, 30), "must ascend"),
        ([grey(0, 63, 48)], Fraction(1, 30), "even width"),
        ([grey(0), grey(1, 32, 48)], Fraction(1, 30), "the clip is 64x48"),
        ([grey(0)], Fraction(1001, 30000), "time base must be 1/n"),
    ],
)
def test_what_can_not_be_written_exactly_is_refused_and_leaves_nothing(
    tmp_path: Path, pictures: list[Picture], time_base: Fraction, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        encode_clip(tmp_path / "clip.mp4", pictures, time_base)
    assert not (tmp_path / "clip.mp4").exists()
