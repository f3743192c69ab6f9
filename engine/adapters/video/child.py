"""The child process that looks into hostile media: `python -m engine.adapters.video.child PARENT_PID LIMITS`.

It reads requests on stdin and answers on stdout (see `channel`), one after the other, until stdin closes.
Nothing that it says is trusted by the parent, and whatever kills it costs one request.
"""

from __future__ import annotations

import io
import os
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.frame import VideoFrame
from PIL import Image

from engine.adapters.video import container, sandbox
from engine.adapters.video.channel import Channel, ChannelClosed
from engine.adapters.video.limits import MediaLimits
from engine.ports import MediaRejected

# Skipping this many frames by decoding them costs less than a seek, which empties the decoder's pipeline.
FRAMES_WORTH_A_SEEK = 8
TOO_MUCH_MEMORY = "decoding it takes too much memory: record at a smaller size"


def main(arguments: list[str]) -> int:
    parent_pid, limits = int(arguments[0]), MediaLimits.from_json(arguments[1])
    # Whatever a library prints must not end up between our messages.
    answers = os.dup(1)
    os.dup2(2, 1)
    channel = Channel(0, answers)
    try:
        sandbox.enter(parent_pid, limits.memory_bytes)
        channel.send({"kind": "ready"})
        while True:
            request, payload = channel.receive(max_payload=max(limits.image_bytes, limits.frames * 8))
            sandbox.allow_cpu(limits.cpu_s)
            try:
                for header, content in answer(request, payload, limits):
                    channel.send(header, content)
                channel.send({"kind": "done"})
            except MediaRejected as error:
                channel.send({"kind": "rejected", "message": str(error)})
            except MemoryError:
                channel.send({"kind": "rejected", "message": TOO_MUCH_MEMORY})
    except (ChannelClosed, sandbox.ParentGone):
        return 0
    except Exception as error:
        # Standard error may be a file, and we may not write to files: the parent must be told here.
        channel.send({"kind": "failed", "message": f"{type(error).__name__}: {error}"[:500]})
        return 1


def answer(request: dict[str, Any], payload: bytes, limits: MediaLimits) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The messages that answer one request. Raises MediaRejected."""
    match request["kind"]:
        case "probe":
            yield probe(Path(request["path"]), limits)
        case "frames":
            yield from frames(Path(request["path"]), array("q", payload).tolist(), limits)
        case "image":
            yield image(payload, limits)
        case kind:
            raise ValueError(f"no such request: {kind!r}")


def probe(path: Path, limits: MediaLimits) -> tuple[dict[str, Any], bytes]:
    with container.opened(path, limits) as (media, stream, packets):
        container.check_decodes(media, stream, packets, limits)
        time_base = stream.time_base
        assert time_base is not None  # opened refuses a stream without one
        header = {
            "kind": "probe",
            "codec": stream.codec_context.codec.canonical_name,
            "width": stream.codec_context.width,
            "height": stream.codec_context.height,
            "time_base": [time_base.numerator, time_base.denominator],
        }
        return header, array("q", packets.pts).tobytes()


def frames(path: Path, targets: list[int], limits: MediaLimits) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The frames at `targets` (ascending, each once), decoded on from a key frame or from the one before."""
    with container.opened(path, limits) as (media, stream, packets):
        order = {pts: number for number, pts in enumerate(packets.pts)}
        for pts in targets:
            if pts not in order:
                raise MediaRejected(f"there is no frame at PTS {pts} in this video: ask for one that its probe lists")
        decoded: Iterator[VideoFrame] | None = None
        reached = -1  # place in order of display of the last decoded frame
        for pts in targets:
            key_pts = packets.key_for(pts)
            # The key frame itself may be one that is not seen, before an edit list's start.
            skipped = bisect_left(packets.pts, key_pts) - reached - 1 if key_pts is not None else 0
            if decoded is None or skipped >= FRAMES_WORTH_A_SEEK:
                decoded = container.decode_from(media, stream, packets, pts)
            for frame in decoded:
                if frame.pts is None or frame.pts < pts:
                    continue
                break
            else:
                raise MediaRejected(f"the video ends before PTS {pts}: the file is damaged; send it again")
            if frame.pts != pts:
                raise MediaRejected(f"the frame at PTS {pts} does not decode: the file is damaged; send it again")
            container.check_frame(frame, stream, limits)
            reached = order[pts]
            try:
                pixels = np.ascontiguousarray(frame.to_ndarray(format="rgb24"))
            except (av.FFmpegError, ValueError) as error:
                raise MediaRejected(f"the frame at PTS {pts} can't be turned into RGB: {container.ADVICE}") from error
            yield {"kind": "picture", "pts": pts, "width": frame.width, "height": frame.height}, pixels.tobytes()


def image(data: bytes, limits: MediaLimits) -> tuple[dict[str, Any], bytes]:
    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as picture:
            width, height = picture.size
            if width > limits.width or height > limits.height or width * height > limits.pixels:
                raise MediaRejected(f"{width}x{height} pixels are more than are taken: make the picture smaller")
            rgb = picture.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, MediaRejected):
            raise
        raise MediaRejected(f"this is no whole PNG or JPEG: {error}") from error
    return {"kind": "picture", "pts": 0, "width": width, "height": height}, rgb.tobytes()


if __name__ == "__main__":
    Image.MAX_IMAGE_PIXELS = None  # our own limit is checked before a pixel is decoded
    sys.exit(main(sys.argv[1:]))
