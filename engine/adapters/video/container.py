"""In the child: opens hostile video, reads its headers and every packet, and proves that it decodes."""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import av
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from engine.adapters.video.limits import MediaLimits
from engine.ports import MediaRejected

# Demuxers that open no second file and no network; playlists and concat scripts are not among them.
CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi"
CODECS = frozenset({"h264", "hevc", "av1", "vp8", "vp9", "mjpeg", "mpeg4"})
BOXES = 100_000  # of the outermost kind that are looked at: a fragment has two
DOUBTFUL_DECODED = 4  # more of them would be a cost that the sender sets
ADVICE = "record it as H.264 in MP4 and send it again"
_OPTIONS = {"format_whitelist": CONTAINERS, "protocol_whitelist": "none"}
# As it opens a file FFmpeg decodes its first frames, to learn by how much they are reordered. That is a fourth of what
# a probe costs, and there is nothing to learn where the frames of an MP4 stand in their order.
_HASTY_OPTIONS = {**_OPTIONS, "skip_frame": "all", "probesize": "65536"}


@dataclass(frozen=True)
class Packets:
    """The timestamps that a stream's packets show, ascending.

    `pts` are all frames that are to be seen; `key_pts` the key frames, unseen ones before an edit list's start too;
    `doubtful_pts` the seen frames that the container's index calls key frames although their bytes don't look like it;
    `reordered` whether the frames are to be seen in another order than that of the file.
    """

    pts: list[int]
    key_pts: list[int]
    doubtful_pts: list[int]
    reordered: bool

    def key_for(self, pts: int) -> int | None:
        """The last key frame at or before `pts`, from which `pts` can be decoded."""
        place = bisect_right(self.key_pts, pts)
        return self.key_pts[place - 1] if place else None


@contextmanager
def opened(path: Path, limits: MediaLimits) -> Iterator[tuple[InputContainer, VideoStream, Packets]]:
    """The file's one video stream, within the limits, and what all of its packets show. Raises MediaRejected."""
    with _regular_file(path, limits) as file:
        file_bytes = os.fstat(file.fileno()).st_size
        is_mp4 = file.read(8)[4:] == b"ftyp"
        if is_mp4:
            _check_boxes(file, file_bytes)
            with _container(file, _HASTY_OPTIONS) as container:
                if all(_has_size(stream) for stream in container.streams.video):
                    stream = _video_stream(container, limits)
                    packets = _read_packets(container, stream, limits, file_bytes)
                    if not packets.reordered:
                        yield container, stream, packets
                        return
        with _container(file, _OPTIONS) as container:
            stream = _video_stream(container, limits)
            yield container, stream, _read_packets(container, stream, limits, file_bytes)


@contextmanager
def _container(file: BinaryIO, options: dict[str, str]) -> Iterator[InputContainer]:
    file.seek(0)
    try:
        container = av.open(file, mode="r", options=options, metadata_errors="replace")
    except (av.FFmpegError, ValueError) as error:
        raise MediaRejected(
            f"this is no whole video file of a kind that we read (MP4, MOV, Matroska, WebM, AVI): {_plain(error)}; "
            f"if it was cut off, send it again, else {ADVICE}"
        ) from error
    with container:
        yield container


def decode_from(container: InputContainer, stream: VideoStream, packets: Packets, pts: int) -> Iterator[VideoFrame]:
    """Frames in order of display, from the key frame that `pts` needs (or an earlier one) on. Raises MediaRejected.

    A container may land behind the key frame that it was asked for, so the first frame is looked at, and an earlier key
    frame is tried until one comes at or before `pts`.
    """
    place = bisect_right(packets.key_pts, pts) - 1
    while place >= 0:
        frames = _decode(container, stream, packets.key_pts[place])
        first = next(frames, None)
        if first is not None and first.pts is not None and first.pts <= pts:
            yield first
            yield from frames
            return
        place = place // 2 if place > 1 else place - 1
    raise MediaRejected(f"the frame at PTS {pts} can't be decoded: no key frame leads to it; send the file again")


def check_decodes(container: InputContainer, stream: VideoStream, packets: Packets, limits: MediaLimits) -> None:
    """Decode the first frame, the last key frame and key frames in doubt. Raises MediaRejected."""
    # Threads that decode several frames at once may tell of damage after they gave the frame away: by chance.
    stream.codec_context.thread_type = "SLICE"
    last_key = max((pts for pts in packets.key_pts if pts >= packets.pts[0]), default=packets.pts[0])
    for pts in sorted({packets.pts[0], last_key, *packets.doubtful_pts[:DOUBTFUL_DECODED]}):
        alone = _decode_alone(container, stream, packets, pts)
        if alone is not None:
            check_frame(alone, stream, limits)
            continue
        for frame in decode_from(container, stream, packets, pts):
            if frame.pts is not None and frame.pts >= pts:
                check_frame(frame, stream, limits)
                break
        else:
            raise MediaRejected(f"the video ends before PTS {pts} when decoded: it is damaged; send the file again")
        if frame.pts != pts:
            raise MediaRejected(f"the frame at PTS {pts} does not decode: the video is damaged; send the file again")


def _decode_alone(container: InputContainer, stream: VideoStream, packets: Packets, pts: int) -> VideoFrame | None:
    """The key frame at `pts` from its one packet, without those that a decoder would wish to see first.

    None where it is no key frame, or does not come whole from one packet: then it has to be decoded with what follows.
    """
    place = bisect_right(packets.key_pts, pts) - 1
    if place < 0 or packets.key_pts[place] != pts:
        return None
    try:
        container.seek(pts, stream=stream, backward=True)
        packet = next(container.demux(stream))
        if packet.pts != pts:
            return None
        decoder = stream.codec_context
        frames = decoder.decode(packet) or decoder.decode(None)
        decoder.flush_buffers()
    except av.FFmpegError as error:
        raise _does_not_decode(error) from error
    whole = len(frames) == 1 and frames[0].pts == pts and not frames[0].is_corrupt
    return frames[0] if whole else None


def check_frame(frame: VideoFrame, stream: VideoStream, limits: MediaLimits) -> None:
    """Raises MediaRejected for a frame that was patched over a hole, is too large, or has another size than others."""
    _check_size(frame.width, frame.height, limits)  # the container's header may have named another one
    if frame.is_corrupt:
        raise MediaRejected(f"the frame at PTS {frame.pts} is damaged; send the file again")
    if (frame.width, frame.height) != (stream.codec_context.width, stream.codec_context.height):
        raise MediaRejected(f"the picture's size changes at PTS {frame.pts}: send each size as a clip of its own")


def _read_packets(container: InputContainer, stream: VideoStream, limits: MediaLimits, file_bytes: int) -> Packets:
    """Demux the whole stream; the container is left at its end. Raises MediaRejected."""
    for entry in stream.index_entries:
        if entry.pos + entry.size > file_bytes:
            raise MediaRejected("the file is cut off: its index names bytes beyond its end; send the whole file again")
    index_keys = {entry.timestamp for entry in stream.index_entries if entry.is_keyframe}
    pts: list[int] = []
    key_pts: list[int] = []
    doubtful_pts: list[int] = []
    try:
        for packet in container.demux(stream):
            if packet.size == 0:
                continue  # the flush at the end
            if packet.is_corrupt:
                raise MediaRejected("a packet is damaged or cut off; send the file again")
            if packet.pts is None:
                raise MediaRejected(f"a frame has no timestamp: write PTS for every frame, or {ADVICE}")
            if packet.is_keyframe:
                key_pts.append(packet.pts)
            if packet.is_discard:
                continue  # outside the edit list: needed to decode others, never shown
            pts.append(packet.pts)
            if packet.dts in index_keys and not packet.is_keyframe:
                doubtful_pts.append(packet.pts)
            if len(pts) > limits.frames:
                raise MediaRejected(f"more than {limits.frames} frames: send shorter clips")
    except av.FFmpegError as error:
        raise MediaRejected(f"the packets can't be read to the end: {_plain(error)}; send the file again") from error
    shown = sorted(pts)
    packets = Packets(shown, sorted(key_pts), sorted(doubtful_pts), reordered=pts != shown)
    _check_packets(packets, Fraction(stream.time_base or 0), limits)
    return packets


def _decode(container: InputContainer, stream: VideoStream, key_pts: int) -> Iterator[VideoFrame]:
    try:
        container.seek(key_pts, stream=stream, backward=True)
        for frame in container.decode(stream):
            if isinstance(frame, VideoFrame):
                yield frame
    except av.FFmpegError as error:
        raise _does_not_decode(error) from error


def _does_not_decode(error: Exception) -> MediaRejected:
    return MediaRejected(f"the video does not decode: {_plain(error)}; {ADVICE}")


@contextmanager
def _regular_file(path: Path, limits: MediaLimits) -> Iterator[BinaryIO]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO must not make us wait
    except OSError as error:
        raise MediaRejected(f"the file can't be opened: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise MediaRejected("this is not a regular file")
        if status.st_size == 0:
            raise MediaRejected("the file is empty: send it again")
        if status.st_size > limits.file_bytes:
            raise MediaRejected(f"{status.st_size} bytes, at most {limits.file_bytes} are taken: send shorter clips")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def _check_boxes(file: BinaryIO, file_bytes: int) -> None:
    """Raises MediaRejected when an MP4's outermost boxes (ISO/IEC 14496-12, 4.2) end beyond the file: it was cut off.

    FFmpeg would read such a file as far as it goes.
    """
    place = 0
    for _ in range(BOXES):
        if place + 8 > file_bytes:
            break
        file.seek(place)
        header = file.read(16)
        size = int.from_bytes(header[:4], "big")
        if size == 0:  # to the end of the file
            break
        if size == 1:
            size = int.from_bytes(header[8:16], "big")
        if size < 8 or place + size > file_bytes:
            raise MediaRejected("the file is cut off: a part of it would end beyond its end; send the whole file again")
        place += size


def _video_stream(container: InputContainer, limits: MediaLimits) -> VideoStream:
    streams = [stream for stream in container.streams.video if not stream.disposition & _ATTACHED_PICTURE]
    if not streams:
        raise MediaRejected("there is no video in this file: a camera stream needs exactly one video track")
    if len(streams) > 1:
        raise MediaRejected(f"{len(streams)} video tracks in one file: send each camera as a stream of its own")
    stream = streams[0]
    codec = stream.codec_context
    if codec is None or codec.codec.canonical_name not in CODECS:
        name = "unknown" if codec is None else codec.codec.canonical_name
        raise MediaRejected(f"codec {name} is not taken (taken: {', '.join(sorted(CODECS))}): {ADVICE}")
    width, height = codec.width, codec.height
    if width < 1 or height < 1:
        raise MediaRejected(f"the video has no size ({width}x{height}): {ADVICE}")
    _check_size(width, height, limits)
    # The decoder's own cap as well: a stream may change its size behind its headers.
    codec.options = {"max_pixels": str(limits.pixels)}
    codec.thread_type = "AUTO"
    codec.thread_count = limits.decoder_threads
    return stream


def _check_size(width: int, height: int, limits: MediaLimits) -> None:
    if width > limits.width or height > limits.height or width * height > limits.pixels:
        raise MediaRejected(
            f"{width}x{height} pixels, at most {limits.width}x{limits.height} and {limits.pixels} in all are taken: "
            "record at a smaller size"
        )


def _has_size(stream: VideoStream) -> bool:
    codec = stream.codec_context
    return codec is not None and codec.width > 0 and codec.height > 0


_ATTACHED_PICTURE = 0x400  # a cover image, AV_DISPOSITION_ATTACHED_PIC


def _check_packets(packets: Packets, time_base: Fraction, limits: MediaLimits) -> None:
    if not packets.pts:
        raise MediaRejected(f"there is no frame in this video: {ADVICE}")
    if not packets.key_pts or packets.key_pts[0] > packets.pts[0]:
        raise MediaRejected(f"the video does not start at a key frame, so its start can't be decoded: {ADVICE}")
    if time_base <= 0:
        raise MediaRejected(f"the video has no time base: {ADVICE}")
    for earlier, later in pairwise(packets.pts):
        if earlier == later:
            raise MediaRejected(f"two frames have the PTS {earlier}: give every frame a time of its own")
    duration_s = (packets.pts[-1] - packets.pts[0]) * time_base
    if duration_s > limits.duration_s:
        raise MediaRejected(
            f"{float(duration_s):.1f} s long, at most {limits.duration_s:g} s are taken: send shorter clips"
        )


def _plain(error: Exception) -> str:
    """An FFmpeg error without the number and the file's name."""
    return str(getattr(error, "strerror", None) or error)
