from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from engine.adapters.video.limits import MediaLimits
from engine.adapters.video.pool import MediaPool
from engine.adapters.video.probe import ChildMediaProbe
from engine.adapters.video.reader import ChildFrameReader
from engine.ports import MediaRejected, Picture

WriteVideo = Callable[..., Path]


@pytest.fixture
def reader(pool: MediaPool) -> ChildFrameReader:
    return ChildFrameReader(pool)


def grey_of(picture: Picture) -> int:
    return round(float(np.frombuffer(picture.rgb, np.uint8).mean()))


def expected_grey(number: int) -> int:
    return 20 + (number * 37) % 200


def test_each_pts_gives_its_own_frame(reader: ChildFrameReader, write_video: WriteVideo) -> None:
    pts = [3, 5, 6, 11, 12, 30, 31, 50, 51, 52, 90, 91, 93]
    path = write_video(pts, b_frames=3, key_every=5)
    pictures = list(reader.frames(path, pts))
    assert [picture.pts for picture in pictures] == pts
    assert [grey_of(picture) for picture in pictures] == pytest.approx([expected_grey(n) for n in range(13)], abs=3)
    assert {(picture.width, picture.height, len(picture.rgb)) for picture in pictures} == {(64, 48, 64 * 48 * 3)}


def test_frames_come_ascending_and_once_whatever_was_asked(reader: ChildFrameReader, write_video: WriteVideo) -> None:
    path = write_video(range(20))
    assert [picture.pts for picture in reader.frames(path, [7, 3, 7, 19])] == [3, 7, 19]
    assert list(reader.frames(path, [])) == []


@pytest.mark.parametrize(("suffix", "open_gop"), [("mp4", 0), ("mp4", 1), ("mkv", 1)])
def test_seeking_and_reading_through_give_the_same_frames(
    reader: ChildFrameReader, pool: MediaPool, tmp_path: Path, suffix: str, open_gop: int
) -> None:
    path = tmp_path / f"clip.{suffix}"
    noise = np.random.default_rng(3)
    with av.open(path, mode="w") as container:
        stream = container.add_stream("libx264", rate=30)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        groups = f"open-gop={open_gop}:keyint=12:min-keyint=12:scenecut=0:bframes=3:b-adapt=0"
        stream.options = {"x264-params": groups, "crf": "20"}
        smooth = noise.integers(0, 255, (6, 8, 3), np.uint8)
        for number in range(75):
            picture = np.roll(smooth.repeat(8, 0).repeat(8, 1), number, axis=1)
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 30)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    pts = ChildMediaProbe(pool).probe(path).pts
    assert len(pts) == 75
    through = {picture.pts: picture.rgb for picture in reader.frames(path, pts)}
    assert len(set(through.values())) > 32
    for value in pts:
        [alone] = reader.frames(path, [value])
        assert alone.rgb == through[value], value
    sparse = list(reader.frames(path, pts[::30]))
    assert [(picture.pts, picture.rgb) for picture in sparse] == [(value, through[value]) for value in pts[::30]]


def test_frames_before_an_edit_lists_start_are_not_seen_but_lead_to_those_that_are(
    reader: ChildFrameReader, pool: MediaPool, write_video: WriteVideo, tmp_path: Path
) -> None:
    whole, trimmed = write_video(range(30), key_every=30, b_frames=0), tmp_path / "trimmed.mp4"
    with av.open(whole) as source, av.open(trimmed, mode="w", options={"video_track_timescale": "30"}) as target:
        copy = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None and packet.pts is not None:
                packet.dts, packet.pts, packet.stream = packet.dts - 7, packet.pts - 7, copy
                target.mux(packet)
    pts = ChildMediaProbe(pool).probe(trimmed).pts
    assert len(pts) == 23
    pictures = list(reader.frames(trimmed, pts))
    assert [grey_of(picture) for picture in pictures] == pytest.approx([expected_grey(n) for n in range(7, 30)], abs=3)
    [alone] = reader.frames(trimmed, [pts[11]])
    assert alone == pictures[11]


def test_a_pts_that_is_not_in_the_video_is_rejected(reader: ChildFrameReader, write_video: WriteVideo) -> None:
    path = write_video(range(0, 40, 2))
    with pytest.raises(MediaRejected, match="no frame at PTS 7"):
        list(reader.frames(path, [6, 7, 8]))
    assert [picture.pts for picture in reader.frames(path, [6])] == [6]


def test_damage_that_a_probe_passes_is_rejected_when_it_is_read(
    reader: ChildFrameReader, pool: MediaPool, write_video: WriteVideo
) -> None:
    path = write_video(range(30), size=(320, 240), key_every=10)
    with av.open(path) as container:
        entries = list(container.streams.video[0].index_entries)
        assert not entries[15].is_keyframe
        assert any(entry.is_keyframe for entry in entries[16:])
        start, size = entries[15].pos, entries[15].size
    content = bytearray(path.read_bytes())
    content[start : start + size] = np.random.default_rng(0).bytes(size)
    path.write_bytes(content)
    pts = ChildMediaProbe(pool).probe(path).pts
    with pytest.raises(MediaRejected):
        list(reader.frames(path, pts))
    assert [picture.pts for picture in reader.frames(path, pts[:2])] == list(pts[:2])


def test_a_reader_left_half_way_does_not_disturb_the_next(reader: ChildFrameReader, write_video: WriteVideo) -> None:
    path = write_video(range(100), size=(320, 240))
    for picture in reader.frames(path, range(100)):
        if picture.pts == 3:
            break
    assert [picture.pts for picture in reader.frames(path, [50])] == [50]


def test_frames_of_two_videos_can_be_read_side_by_side(reader: ChildFrameReader, write_video: WriteVideo) -> None:
    left, right = write_video(range(30), name="left.mp4"), write_video(range(30), name="right.mp4")
    pairs = zip(reader.frames(left, range(30)), reader.frames(right, range(30)), strict=True)
    assert all(one.pts == other.pts and one.rgb == other.rgb for one, other in pairs)


def test_a_png_is_lossless_and_always_the_same(reader: ChildFrameReader) -> None:
    rgb = np.random.default_rng(1).integers(0, 255, (48, 64, 3), np.uint8).tobytes()
    picture = Picture(pts=9, width=64, height=48, rgb=rgb)
    data = reader.encode_png(picture)
    assert data == reader.encode_png(picture)
    assert reader.decode_image(data) == Picture(pts=0, width=64, height=48, rgb=rgb)


def test_a_jpeg_is_decoded_and_grey_becomes_rgb(reader: ChildFrameReader) -> None:
    out = io.BytesIO()
    Image.new("L", (33, 17), 99).save(out, "JPEG")
    picture = reader.decode_image(out.getvalue())
    assert (picture.width, picture.height) == (33, 17)
    assert grey_of(picture) == 99


def png_that_claims(width: int, height: int) -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no whole PNG or JPEG"),
        (b"<svg/>", "no whole PNG or JPEG"),
        (png_that_claims(64, 48), "no whole PNG or JPEG"),
        (png_that_claims(60_000, 60_000), "more than are taken"),
        (b"GIF89a" + bytes(100), "no whole PNG or JPEG"),
    ],
)
def test_what_is_no_picture_is_rejected(reader: ChildFrameReader, data: bytes, says: str) -> None:
    with pytest.raises(MediaRejected, match=says):
        reader.decode_image(data)


def test_a_picture_over_the_byte_limit_never_reaches_the_child() -> None:
    pool = MediaPool(MediaLimits(image_bytes=10))
    with pytest.raises(MediaRejected, match="at most 10"):
        ChildFrameReader(pool).decode_image(bytes(11))


def test_mutated_videos_are_read_or_rejected_and_nothing_else(write_video: WriteVideo, tmp_path: Path) -> None:
    whole = write_video(range(40), size=(160, 120), key_every=10).read_bytes()
    chance = random.Random(11)
    pool = MediaPool(MediaLimits(wall_s=10, memory_bytes=2 << 30), size=1)
    probe, reader = ChildMediaProbe(pool), ChildFrameReader(pool)
    outcomes = {"read": 0, "rejected": 0}
    for number in range(50):
        content = bytearray(whole)
        # The index holds the sizes and times, so half of the mutations hit it.
        end = len(content) if number % 2 else min(2000, len(content))
        for _ in range(chance.choice((1, 3, 20))):
            content[chance.randrange(end)] = chance.randrange(256)
        if number % 5 == 0:
            del content[chance.randrange(len(content)) :]
        path = tmp_path / f"mutated-{number}.mp4"
        path.write_bytes(content)
        try:
            found = probe.probe(path)
            assert list(found.pts) == sorted(set(found.pts))
            pictures = list(reader.frames(path, found.pts))
            assert [picture.pts for picture in pictures] == list(found.pts)
            outcomes["read"] += 1
        except MediaRejected:
            outcomes["rejected"] += 1
    pool.close()
    assert outcomes["rejected"] >= 10
    assert outcomes["read"] >= 5


@pytest.mark.real_data
def test_real_frames_are_the_same_by_seek_and_in_order(
    reader: ChildFrameReader, pool: MediaPool, highway_video: Path
) -> None:
    pts = ChildMediaProbe(pool).probe(highway_video).pts[:120]
    wanted = set(pts[::17])
    through = {picture.pts: picture.rgb for picture in reader.frames(highway_video, pts) if picture.pts in wanted}
    for value in sorted(wanted):
        [alone] = reader.frames(highway_video, [value])
        assert alone.rgb == through[value]
