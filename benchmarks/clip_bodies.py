"""Uploads for the benchmark of ingest: real H.264 of a given size, each with bytes and a manifest of its own."""

from __future__ import annotations

import io
import json
import secrets
import struct
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import av
import numpy as np
from av.video.frame import VideoFrame
from PIL import Image

BOUNDARY = "longtail-benchmark"
CONTENT_TYPE = f"multipart/form-data; boundary={BOUNDARY}"
FPS = 30
NONCE_BYTES = 16
_BOX_HEADER = 8
_OPENING = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="stream:front"; filename="front.mp4"\r\n\r\n'.encode()
_BETWEEN = f'\r\n--{BOUNDARY}\r\nContent-Disposition: form-data; name="manifest"\r\n\r\n'.encode()
_CLOSING = f"\r\n--{BOUNDARY}--\r\n".encode()


@dataclass(frozen=True)
class ClipMaker:
    """Makes any number of uploads of one video, which differ in 16 bytes of an MP4 box that players skip."""

    video: bytes
    pictures: int

    @property
    def size(self) -> int:
        """Bytes of each clip's file."""
        return len(self.video) + _BOX_HEADER + NONCE_BYTES

    def upload(self, drive: str) -> list[bytes]:
        """The pieces of one request's body, in order."""
        clip = secrets.token_hex(8)
        manifest = {
            "vehicle": {"external_id": f"vehicle-of-{drive}", "platform": "benchmark"},
            "drive": {"external_id": drive},
            "external_id": clip,
            "start_ns": 1_790_000_000_000_000_000,
            "clock_source": "gps",
            "streams": [{"name": "front"}],
            "telemetry": [
                {"t_ns": 1_790_000_000_000_000_000 + number * 100_000_000, "speed_mps": 12.5} for number in range(50)
            ],
            "licence": "CC0-1.0",
        }
        nonce = struct.pack(">I4s", _BOX_HEADER + NONCE_BYTES, b"free") + secrets.token_bytes(NONCE_BYTES)
        return [_OPENING, self.video, nonce + _BETWEEN + json.dumps(manifest).encode() + _CLOSING]


def make_clips(size: int, width: int, height: int, bit_rate: int) -> ClipMaker:
    """Clips of exactly `size` bytes: seconds of H.264 at this rate, repeated until less than one more would fit.

    Raises ValueError when not even one second fits.
    """
    second = _one_second(width, height, bit_rate)
    room = size - _BOX_HEADER - NONCE_BYTES - _BOX_HEADER
    seconds = max(1, room // len(second))
    video = _repeated(second, seconds)
    if len(video) > room:
        raise ValueError(f"a second of this video has more than {size} bytes")
    while len(longer := _repeated(second, seconds + 1)) <= room:
        video, seconds = longer, seconds + 1
    # The rest of a second is filled with a box that is skipped.
    filler = struct.pack(">I4s", size - len(video) - _BOX_HEADER - NONCE_BYTES, b"free")
    video += filler + bytes(size - len(video) - _BOX_HEADER - NONCE_BYTES - len(filler))
    return ClipMaker(video, seconds * FPS)


def _one_second(width: int, height: int, bit_rate: int) -> bytes:
    """Patches that move under a camera's noise, from a key frame on."""
    chance = np.random.default_rng(0)
    patches = chance.integers(0, 256, (height // 16 + 8, width // 16 + 8, 3), np.uint8)
    scene = np.asarray(Image.fromarray(patches).resize((width + 2 * FPS, height + FPS), Image.Resampling.BICUBIC))
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.bit_rate = bit_rate
        stream.codec_context.gop_size, stream.codec_context.max_b_frames = FPS, 0
        stream.options = {"preset": "veryfast", "maxrate": str(bit_rate), "bufsize": str(bit_rate // 8)}
        for number in range(FPS):
            seen = scene[number : number + height, 2 * number : 2 * number + width] // 2
            seen += chance.integers(0, 24, seen.shape, np.uint8)
            container.mux(stream.encode(VideoFrame.from_ndarray(seen, format="rgb24")))
        container.mux(stream.encode(None))
    return out.getvalue()


def _repeated(second: bytes, times: int) -> bytes:
    out = io.BytesIO()
    with av.open(io.BytesIO(second), "r") as source:
        template = source.streams.video[0]
        packets = [
            (packet.pts, bytes(packet), packet.is_keyframe)
            for packet in source.demux(template)
            if packet.pts is not None
        ]
        time_base = cast(Fraction, template.time_base)
        step = int(Fraction(1) / time_base)
        with av.open(out, "w", format="mp4") as target:
            copy = target.add_stream_from_template(template)
            for number in range(times):
                for pts, content, key in packets:
                    packet = av.Packet(content)
                    packet.pts = packet.dts = pts + number * step
                    packet.time_base, packet.stream, packet.is_keyframe = time_base, copy, key
                    target.mux(packet)
    return out.getvalue()
