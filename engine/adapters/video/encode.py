"""Writes video of our own, for imports: pictures in, one H.264 stream in an MP4 out."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import cast

import av
import numpy as np
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from engine.ports import Picture


def encode_clip(
    path: Path,
    pictures: Iterable[Picture],
    time_base: Fraction,
    *,
    crf: int = 18,
    codec: str = "libx264",
    key_every: int = 30,
    b_frames: int = 2,
    preset: str = "veryfast",
) -> int:
    """Write `pictures` as one clip and return how many there were. The same pictures give the same bytes.

    Args:
        pictures: of one even size, their `pts` strictly ascending from 0 or more, in units of `time_base`; the file has
            exactly these.
        time_base: 1/n seconds.
        crf: constant quality, 0 (lossless) to 51.

    Raises:
        ValueError: there is no picture, or one breaks the rules above. Nothing is left at `path` then.
    """
    if time_base.numerator != 1:
        raise ValueError(f"the time base must be 1/n for exact timestamps in MP4, not {time_base}")
    ordered = iter(pictures)
    first = next(ordered, None)
    if first is None:
        raise ValueError("a clip needs at least one picture")
    if first.width % 2 or first.height % 2:
        raise ValueError(f"H.264 needs an even width and height, not {first.width}x{first.height}")
    written = 0
    try:
        # The muxer would pick a finer time scale, and with it other numbers for the same times.
        options = {"video_track_timescale": str(time_base.denominator), "movflags": "+faststart"}
        with av.open(path, mode="w", format="mp4", options=options) as container:
            stream = cast(VideoStream, container.add_stream(codec, rate=Fraction(time_base.denominator)))
            stream.width, stream.height, stream.pix_fmt = first.width, first.height, "yuv420p"
            stream.time_base = stream.codec_context.time_base = time_base
            stream.codec_context.gop_size = key_every
            stream.codec_context.max_b_frames = b_frames
            stream.codec_context.thread_count = 1  # a clip is short, and others share the machine
            stream.options = {"crf": str(crf), "preset": preset}
            last = -1
            for picture in chain((first,), ordered):
                if picture.pts <= last:
                    raise ValueError(f"PTS must ascend from 0 or more: {picture.pts} comes after {last}")
                last = picture.pts
                if (picture.width, picture.height) != (first.width, first.height):
                    raise ValueError(
                        f"the picture at PTS {picture.pts} is {picture.width}x{picture.height}, the clip is "
                        f"{first.width}x{first.height}"
                    )
                container.mux(stream.encode(_frame(picture, time_base)))
                written += 1
            container.mux(stream.encode(None))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return written


def _frame(picture: Picture, time_base: Fraction) -> VideoFrame:
    pixels = np.frombuffer(picture.rgb, np.uint8).reshape(picture.height, picture.width, 3)
    frame = VideoFrame.from_ndarray(pixels, format="rgb24")
    frame.pts, frame.time_base = picture.pts, time_base
    return frame
