"""Decodes hostile media: `engine.ports.FrameReader` by a child process."""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from PIL import Image

from engine.adapters.video.pool import NONSENSE, MediaPool
from engine.ports import MediaRejected, Picture


class ChildFrameReader:
    """`engine.ports.FrameReader`. Frames come as RGB in the size and orientation in which they were coded."""

    def __init__(self, pool: MediaPool | None = None) -> None:
        self._pool = pool or MediaPool()

    def frames(self, path: Path, pts: Sequence[int]) -> Iterator[Picture]:
        """The frames at exactly these PTS, each once, ascending, decoded as they are asked for.

        Raises MediaRejected when one is not to be had, MediaPoolBusy.
        """
        wanted = sorted(set(pts))
        if not wanted:
            return
        request = {"kind": "frames", "path": str(path.absolute())}
        got = 0
        with closing(self._pool.request(request, array("q", wanted).tobytes())) as messages:
            for header, content in messages:
                picture = _picture(header, content)
                if got == len(wanted) or picture.pts != wanted[got]:
                    raise MediaRejected("the media made its decoder answer other frames than were asked for")
                got += 1
                yield picture
        if got != len(wanted):
            raise MediaRejected(f"the media gave {got} frames of {len(wanted)}")

    def encode_png(self, picture: Picture) -> bytes:
        """Lossless. The same picture gives the same bytes."""
        out = io.BytesIO()
        # Level 3 takes a third of the time of Pillow's default for a few per cent more bytes.
        Image.frombytes("RGB", (picture.width, picture.height), picture.rgb).save(out, "PNG", compress_level=3)
        return out.getvalue()

    def decode_image(self, data: bytes) -> Picture:
        """A PNG or JPEG as RGB; its pts is 0. Raises MediaRejected, MediaPoolBusy."""
        largest = self._pool.limits.image_bytes
        if len(data) > largest:
            raise MediaRejected(f"a picture of {len(data)} bytes, at most {largest} are taken: make it smaller")
        return _picture(*self._pool.answer({"kind": "image"}, data))


def _picture(header: dict[str, Any], content: bytes) -> Picture:
    pts, width, height = header.get("pts"), header.get("width"), header.get("height")
    if not (isinstance(pts, int) and isinstance(width, int) and isinstance(height, int)):
        raise MediaRejected(NONSENSE)
    if width < 1 or height < 1 or len(content) != width * height * 3:
        raise MediaRejected(NONSENSE)
    return Picture(pts=pts, width=width, height=height, rgb=content)
