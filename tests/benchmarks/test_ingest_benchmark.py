"""The benchmark of ingest says what it promises to say, and sends what it says that it sends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.clip_bodies import make_clips
from benchmarks.outcome import conclude
from engine.adapters.video.pool import MediaPool
from engine.adapters.video.probe import ChildMediaProbe

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_quick_form_measures_and_ends_with_its_line(session_folder: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.ingest", "--quick", "--folder", str(session_folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    table, _, last = done.stdout.rstrip().rpartition("\n")
    assert "clips/s" in table
    told = json.loads(last)
    assert set(told) == {"benchmark", "ratios", "targets", "met"}
    assert told["benchmark"] == "ingest"
    assert set(told["ratios"]) == set(told["targets"]) == {"ours_over_bare", "ours_over_bare_small", "rss_growth_mb"}
    assert 0 < told["ratios"]["ours_over_bare_small"] < 2
    assert 0 < told["ratios"]["ours_over_bare"] < 2
    assert told["ratios"]["rss_growth_mb"] < 64, "the server's memory grows with the size of a clip"
    assert list(session_folder.glob("longtail-benchmark-*")) == []


def test_clips_have_their_size_are_real_video_and_differ_from_each_other(tmp_path: Path) -> None:
    clips = make_clips(300_000, 320, 180, 500_000)
    uploads = [b"".join(clips.upload("d")) for _ in range(3)]
    assert len(set(uploads)) == 3
    files = [upload.split(b"\r\n\r\n", 1)[1].split(b"\r\n--longtail-benchmark", 1)[0] for upload in uploads]
    assert {len(file) for file in files} == {clips.size} == {300_000}
    assert len(set(files)) == 3
    pool = MediaPool(size=1)
    for number, file in enumerate(files):
        path = tmp_path / f"{number}.mp4"
        path.write_bytes(file)
        found = ChildMediaProbe(pool).probe(path)
        assert (found.codec, found.width, found.height, len(found.pts)) == ("h264", 320, 180, clips.pictures)
        assert clips.pictures > 30
    pool.close()


def test_a_size_in_which_no_second_fits_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        make_clips(1000, 320, 180, 500_000)


@pytest.mark.parametrize(
    ("found", "met"), [((0.8, 4.0), True), ((0.79, 4.0), False), ((0.9, 4.1), False), ((0.9, -1.0), True)]
)
def test_a_benchmark_is_met_when_every_target_is(
    found: tuple[float, float], met: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    conclude("x", {"speed": found[0], "growth": found[1]}, {"speed": 0.8}, {"growth": 4.0})
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "benchmark": "x",
        "ratios": {"speed": found[0], "growth": found[1]},
        "targets": {"speed": 0.8, "growth": 4.0},
        "met": met,
    }
