"""Takes faces and plates out of pictures before a person sees them: implementations of `engine.ports.Redactor`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from PIL import Image, ImageFilter

from engine.ports import Picture

Box = tuple[float, float, float, float]

# So few cells that neither a face nor the characters of a plate can be told, whatever the box's size in pixels.
CELLS = 4
MARGIN = 0.1  # of the box's size, added on each side: detectors cut close


class NoRedaction:
    """Pictures pass as they are: for fleets whose recordings show nobody, as a simulator's do."""

    def redact(self, picture: Picture) -> Picture:
        return picture


class BoxRedactor:
    """Blurs given boxes past recognition; `boxes` by PTS, as fractions [x0, y0, x1, y1] of the picture.

    A picture whose PTS has no boxes passes as it is. Of what a box held, 4x4 means are all that is left.
    """

    def __init__(self, boxes: Mapping[int, Sequence[Box]]) -> None:
        """Raises ValueError for a box without area, or outside the picture."""
        for pts, places in boxes.items():
            for box in places:
                x0, y0, x1, y1 = box
                if not all(math.isfinite(side) for side in box) or not (0 <= x0 < x1 <= 1 and 0 <= y0 < y1 <= 1):
                    raise ValueError(f"PTS {pts}: box {list(box)} must be [x0, y0, x1, y1] in fractions of the picture")
        self._boxes = {pts: tuple(places) for pts, places in boxes.items()}

    def redact(self, picture: Picture) -> Picture:
        boxes = self._boxes.get(picture.pts, ())
        if not boxes:
            return picture
        image = Image.frombytes("RGB", (picture.width, picture.height), picture.rgb)
        for box in boxes:
            _blur(image, box)
        return replace(picture, rgb=image.tobytes())


def _blur(image: Image.Image, box: Box) -> None:
    x0, y0, x1, y1 = box
    grow_x, grow_y = (x1 - x0) * MARGIN, (y1 - y0) * MARGIN
    left, top = max(0, math.floor((x0 - grow_x) * image.width)), max(0, math.floor((y0 - grow_y) * image.height))
    right = min(image.width, math.ceil((x1 + grow_x) * image.width))
    bottom = min(image.height, math.ceil((y1 + grow_y) * image.height))
    size = (right - left, bottom - top)
    cells = (min(CELLS, size[0]), min(CELLS, size[1]))
    means = image.crop((left, top, right, bottom)).resize(cells, Image.Resampling.BOX)
    smooth = means.resize(size, Image.Resampling.NEAREST).filter(ImageFilter.GaussianBlur(max(size) / (2 * CELLS)))
    image.paste(smooth, (left, top))
