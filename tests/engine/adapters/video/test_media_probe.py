from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from engine.adapters.video.limits import MediaLimits
from engine.adapters.video.pool import MediaPool
from engine.adapters.video.probe import ChildMediaProbe
from engine.ports import MediaRejected

WriteVideo = Callable[..., Path]


@pytest.fixture
def probe(pool: MediaPool) -> ChildMediaProbe:
    return ChildMediaProbe(pool)


def test_a_probe_says_what_the_headers_and_packets_say(probe: ChildMediaProbe, write_video: WriteVideo) -> None:
    found = probe.probe(write_video(range(0, 90, 3), time_base=Fraction(1, 90)))
    assert (found.codec, found.width, found.height) == ("h264", 64, 48)
    assert (found.time_base_num, found.time_base_den) == (1, 90)
    assert found.pts == tuple(range(0, 90, 3))
    assert found.duration_s == pytest.approx(87 / 90)


def test_irregular_timestamps_with_b_frames_are_exact(probe: ChildMediaProbe, write_video: WriteVideo) -> None:
    pts = [5, 6, 9, 14, 15, 40, 41, 44, 100, 101, 250]
    found = probe.probe(write_video(pts, time_base=Fraction(1, 1000), b_frames=3, key_every=6))
    assert found.pts == tuple(pts)


def write_audio(path: Path) -> None:
    with av.open(path, mode="w") as container:
        stream = container.add_stream("aac", rate=16000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 16000, 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def write_two_cameras(path: Path) -> None:
    with av.open(path, mode="w") as container:
        streams = [container.add_stream("libx264", rate=30) for _ in range(2)]
        for stream in streams:
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for stream in streams:
            frame = av.VideoFrame(64, 48, "yuv420p")
            frame.pts = 0
            container.mux(stream.encode(frame))
            container.mux(stream.encode(None))


def write_png_track(path: Path) -> None:
    with av.open(path, mode="w", format="mov") as container:
        stream = container.add_stream("png", rate=30)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "rgb24"
        frame = av.VideoFrame(64, 48, "rgb24")
        frame.pts = 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


@pytest.mark.parametrize(
    ("name", "make", "says"),
    [
        ("text.mp4", lambda path: path.write_text("not a video\n" * 500), "no whole video file"),
        (
            "playlist.mp4",
            lambda path: path.write_text("#EXTM3U\n#EXTINF:1,\nfile:///etc/hosts\n"),
            "no whole video file",
        ),
        ("script.mp4", lambda path: path.write_text("ffconcat version 1.0\nfile /etc/passwd\n"), "no whole video file"),
        ("zero.mp4", lambda path: path.write_bytes(b""), "the file is empty"),
        ("zeros.mp4", lambda path: path.write_bytes(bytes(100_000)), "no whole video file"),
        ("audio.mp4", write_audio, "no video in this file"),
        ("two.mp4", write_two_cameras, "2 video tracks"),
        ("png.mp4", write_png_track, "codec png is not taken"),
        ("folder.mp4", lambda path: path.mkdir(), "not a regular file"),
        ("fifo.mp4", os.mkfifo, "not a regular file"),
        ("absent.mp4", lambda path: None, "can't be opened"),
    ],
)
def test_what_is_no_video_is_rejected_with_the_reason(
    probe: ChildMediaProbe, tmp_path: Path, name: str, make: Callable[[Path], object], says: str
) -> None:
    make(tmp_path / name)
    with pytest.raises(MediaRejected, match=says):
        probe.probe(tmp_path / name)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("index_first", [True, False])
def test_a_truncated_video_is_rejected(
    probe: ChildMediaProbe, write_video: WriteVideo, tmp_path: Path, share: float, index_first: bool
) -> None:
    whole = write_video(range(60), size=(320, 240))
    if not index_first:
        with av.open(whole) as source, av.open(tmp_path / "late.mp4", mode="w") as target:
            copy = target.add_stream_from_template(source.streams.video[0])
            for packet in source.demux(video=0):
                if packet.dts is not None:
                    packet.stream = copy
                    target.mux(packet)
        whole = tmp_path / "late.mp4"
    content = whole.read_bytes()
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(content[: int(len(content) * share)])
    assert probe.probe(whole).pts[-1] > 0
    with pytest.raises(MediaRejected, match="again"):
        probe.probe(cut)


@pytest.mark.parametrize("place", [0, -1])
def test_a_key_frame_overwritten_with_noise_is_rejected(
    probe: ChildMediaProbe, write_video: WriteVideo, tmp_path: Path, place: int
) -> None:
    path = write_video(range(30), size=(320, 240), key_every=10)
    with av.open(path) as container:
        entries = container.streams.video[0].index_entries
        key = [entry for entry in entries if entry.is_keyframe][place]
        start, size = key.pos, key.size
    content = bytearray(path.read_bytes())
    content[start : start + size] = np.random.default_rng(0).bytes(size)
    (tmp_path / "noise.mp4").write_bytes(content)
    with pytest.raises(MediaRejected):
        probe.probe(tmp_path / "noise.mp4")


def test_a_picture_wider_than_the_limit_is_rejected(probe: ChildMediaProbe, write_video: WriteVideo) -> None:
    with pytest.raises(MediaRejected, match=r"8208x16 pixels.*record at a smaller size"):
        probe.probe(write_video(range(2), size=(8208, 16)))


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (MediaLimits(pixels=3000), "64x48 pixels"),
        (MediaLimits(frames=29), "more than 29 frames"),
        (MediaLimits(duration_s=0.5), "at most 0.5 s"),
        (MediaLimits(file_bytes=500), "at most 500 are taken"),
    ],
)
def test_media_over_a_limit_is_rejected(write_video: WriteVideo, limits: MediaLimits, says: str) -> None:
    pool = MediaPool(limits, size=1)
    with pytest.raises(MediaRejected, match=says):
        ChildMediaProbe(pool).probe(write_video(range(30)))
    pool.close()


@pytest.mark.real_data
def test_a_real_motorway_clip_is_probed(probe: ChildMediaProbe, highway_video: Path) -> None:
    found = probe.probe(highway_video)
    assert (found.codec, found.width, found.height, len(found.pts)) == ("h264", 960, 540, 221)
    assert found.duration_s == pytest.approx(8.8)
