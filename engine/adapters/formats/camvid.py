"""Reads a CamVid folder: drives, clips of pictures and the labels that its masks hold.

The layout is that of the SegNet tutorial: `SEQUENCE/images/NAME.jpg` and `SEQUENCE/labels/NAME.png`, an 8-bit index
mask of the same size; NAME ends in the frame's number in a recording at 30 frames a second.

Brostow, Fauqueur, Cipolla: Semantic object classes in video: a high-definition ground truth database (2009).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy import ndimage

from engine.domain.answers import IGNORE, Answer
from engine.domain.ontology import Head, Kind, Ontology
from engine.ports import Picture

TIME_BASE = Fraction(1, 30)
ROAD, SIGN, UNLABELLED = 3, 6, 11
OBJECT_CLASSES = {"car": 8, "pedestrian": 9, "bicyclist": 10}
LEAST_PIXELS = 100  # smaller components are crumbs of occluded or far things: ignored, neither right nor wrong
FRAMES_PER_CLIP = 10

# CamVid gives no date. Times within a drive are its own; the day is this one for all.
_DAY_NS = 1_199_145_600 * 10**9  # 2008-01-01T00:00:00Z
_TOUCHING = np.ones((3, 3), dtype=int)  # corners join as well


class CamVidError(ValueError):
    """The folder is not a CamVid folder as it should be; the message says what is missing."""


@dataclass(frozen=True)
class CamVidFrame:
    """One labelled picture. `pts` counts 1/30 s from the start of the recording of its drive."""

    picture: Path
    mask: Path
    pts: int

    def labels(self) -> dict[str, Answer]:
        """The canonical answers for the heads of `camvid_ontology`. Raises CamVidError."""
        with Image.open(self.mask) as image:
            indices = np.asarray(image)
        if indices.ndim != 2 or indices.dtype != np.uint8:
            raise CamVidError(f"{self.mask} is not an 8-bit index mask")
        if indices.max() > UNLABELLED:
            raise CamVidError(f"{self.mask} holds index {indices.max()}: CamVid's classes end at {UNLABELLED}")
        return {
            "driveable": driveable_answer(indices),
            "objects": boxes_answer(indices, OBJECT_CLASSES, LEAST_PIXELS),
            "signs": boxes_answer(indices, {"sign": SIGN}, LEAST_PIXELS),
        }

    def rgb(self, start_pts: int = 0) -> Picture:
        """The decoded picture, its PTS counted from `start_pts`."""
        with Image.open(self.picture) as image:
            rgb = image.convert("RGB")
        return Picture(pts=self.pts - start_pts, width=rgb.width, height=rgb.height, rgb=rgb.tobytes())


@dataclass(frozen=True)
class CamVidClip:
    """Consecutive frames of one sequence. In the clip's video the first has PTS 0, in units of `TIME_BASE`."""

    external_id: str
    drive: str
    frames: tuple[CamVidFrame, ...]

    @property
    def start_ns(self) -> int:
        """Capture time of the first frame: right within a drive, its day is made up (clock source "unknown")."""
        return _DAY_NS + self.frames[0].pts * 10**9 * TIME_BASE.numerator // TIME_BASE.denominator

    def pictures(self) -> Iterator[Picture]:
        """What to encode, in order."""
        for frame in self.frames:
            yield frame.rgb(self.frames[0].pts)

    def labels(self) -> Iterator[tuple[int, dict[str, Answer]]]:
        """(PTS in the clip's video, answer by head), in order."""
        for frame in self.frames:
            yield frame.pts - self.frames[0].pts, frame.labels()


@dataclass(frozen=True)
class CamVidDrive:
    """One trip: the split group. `0016E5-15hz` is a denser piece of `0016E5` and belongs to the same drive."""

    external_id: str
    clips: tuple[CamVidClip, ...]


def camvid_ontology(version: int = 1) -> Ontology:
    """The heads that CamVid's masks can label."""
    return Ontology(
        name="camvid",
        version=version,
        heads=(
            Head("objects", Kind.BOXES, tuple(OBJECT_CLASSES)),
            Head("driveable", Kind.MASK, ("driveable",)),
            Head("signs", Kind.BOXES, ("sign",)),
        ),
    )


def read_drives(folder: Path, frames_per_clip: int = FRAMES_PER_CLIP) -> list[CamVidDrive]:
    """The drives of a CamVid folder, each with its clips in order of capture. Raises CamVidError."""
    sequences = sorted(path for path in folder.iterdir() if (path / "images").is_dir()) if folder.is_dir() else []
    if not sequences:
        raise CamVidError(f"{folder} holds no SEQUENCE/images folder: give the folder that holds CamVid's sequences")
    clips: dict[str, list[CamVidClip]] = {}
    for sequence in sequences:
        drive = sequence.name.removesuffix("-15hz")
        clips.setdefault(drive, []).extend(_clips(sequence, drive, frames_per_clip))
    return [
        CamVidDrive(drive, tuple(sorted(members, key=lambda clip: (clip.start_ns, clip.external_id))))
        for drive, members in sorted(clips.items())
    ]


def driveable_answer(indices: npt.NDArray[np.uint8]) -> Answer:
    """Mask indices (H, W) to the driveable mask: road is 1, unlabelled is ignored, all else is background."""
    cells = np.where(indices == ROAD, 1, np.where(indices == UNLABELLED, IGNORE, 0)).astype(np.uint8)
    flat = cells.ravel()
    starts = np.concatenate(([0], np.flatnonzero(flat[1:] != flat[:-1]) + 1))
    lengths = np.diff(np.append(starts, flat.size))
    runs = [[int(index), int(length)] for index, length in zip(flat[starts], lengths, strict=True)]
    return Answer(Kind.MASK, {"size": list(cells.shape), "runs": runs})


def boxes_answer(indices: npt.NDArray[np.uint8], classes: dict[str, int], least_pixels: int) -> Answer:
    """Mask indices (H, W) to weak boxes: one for each connected component of `least_pixels` or more.

    Objects that touch in the picture become one box: a mask can't tell them apart. Smaller components are ignored
    regions.
    """
    height, width = indices.shape
    objects: list[dict[str, object]] = []
    ignored: list[list[float]] = []
    for name, index in classes.items():
        components, _ = ndimage.label(indices == index, structure=_TOUCHING)
        pixels = np.bincount(components.ravel())[1:]
        found = 0
        for count, place in zip(pixels, ndimage.find_objects(components), strict=True):
            rows, columns = place
            box = [columns.start / width, rows.start / height, columns.stop / width, rows.stop / height]
            if count < least_pixels:
                ignored.append(box)
                continue
            objects.append({"id": f"{name}-{found}", "class": name, "box": box})
            found += 1
    return Answer(Kind.BOXES, {"objects": objects, "ignore": ignored})


def _clips(sequence: Path, drive: str, frames_per_clip: int) -> list[CamVidClip]:
    frames = sorted((_frame(picture) for picture in (sequence / "images").glob("*.jpg")), key=lambda frame: frame.pts)
    if not frames:
        raise CamVidError(f"{sequence / 'images'} holds no .jpg")
    steps = [later.pts - earlier.pts for earlier, later in pairwise(frames)]
    usual = sorted(steps)[len(steps) // 2] if steps else 1
    groups: list[list[CamVidFrame]] = [[]]
    for place, frame in enumerate(frames):
        # A hole in the recording ends a clip: its frames would not be consecutive.
        if groups[-1] and (len(groups[-1]) == frames_per_clip or steps[place - 1] > 2 * usual):
            groups.append([])
        groups[-1].append(frame)
    return [CamVidClip(f"{sequence.name}-{group[0].pts:05d}", drive, tuple(group)) for group in groups]


def _frame(picture: Path) -> CamVidFrame:
    number = re.search(r"(\d+)$", picture.stem)
    mask = picture.parent.parent / "labels" / f"{picture.stem}.png"
    if number is None:
        raise CamVidError(f"{picture} does not end in a frame number")
    if not mask.is_file():
        raise CamVidError(f"{picture} has no mask at {mask}")
    return CamVidFrame(picture=picture, mask=mask, pts=int(number.group(1)))
