"""Video whose headers and pictures are larger than anybody should decode."""

from __future__ import annotations

import io
import struct

import av
from PIL import Image


def claiming(video: bytes, width: int, height: int) -> bytes:
    """The same MP4 with another sequence parameter set (ITU-T H.264, 7.3.2.1.1), which claims another size."""

    def golomb(value: int) -> str:
        return "0" * ((value + 1).bit_length() - 1) + f"{value + 1:b}"

    # Baseline: id, frame numbers, order by decoding, one reference; no gaps; the size in macroblocks; frames, no crop.
    rest = [
        golomb(0),
        golomb(0),
        golomb(2),
        golomb(1),
        "0",
        golomb(width // 16 - 1),
        golomb(height // 16 - 1),
        "1100",
        "1",
    ]
    bits = "".join(rest)
    bits += "0" * (-len(bits) % 8)
    claim = b"\x67\x42\xc0\x3c" + int(bits, 2).to_bytes(len(bits) // 8, "big")
    content = bytearray(video)
    start = content.index(b"avcC") + 12
    (length,) = struct.unpack_from(">H", content, start - 2)
    assert content[start] & 0x1F == 7
    assert len(claim) <= length
    content[start : start + length] = claim.ljust(length, b"\0")
    return bytes(content)


def jpeg_bomb(width: int, height: int) -> bytes:
    """An MP4 that says 64x48, whose one JPEG is a whole picture of this size: black, so that it needs few bytes."""
    picture = io.BytesIO()
    Image.new("L", (width, height)).save(picture, "JPEG", quality=1)
    jpeg = picture.getvalue()
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as container:
        stream = container.add_stream("mjpeg", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuvj420p"
        container.start_encoding()
        packet = av.Packet(jpeg)
        packet.stream, packet.pts, packet.dts, packet.time_base = stream, 0, 0, stream.time_base
        packet.is_keyframe = True
        container.mux(packet)
    return out.getvalue()
