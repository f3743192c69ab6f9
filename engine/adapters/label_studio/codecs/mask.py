"""Masks: one brush region per class. Where regions overlap, the one drawn later is on top, as on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from engine.adapters.label_studio.codecs.brush_rle import BrushCodeError, decode_brush, encode_brush
from engine.adapters.label_studio.codecs.regions import (
    IGNORE_LABEL,
    Result,
    ResultError,
    label_control,
    label_of,
    region,
    value_of,
)
from engine.domain.answers import IGNORE, Answer, decode_runs
from engine.domain.ontology import Head, Kind


class MaskCodec:
    RESULT_TYPE = "brushlabels"

    def control(self, head: Head) -> Element:
        return label_control("BrushLabels", head, ignorable=True)

    def encode(self, head: Head, answer: Answer, width: int, height: int) -> list[dict[str, Any]]:
        """A mask of another size than the picture's is brought to it by nearest neighbour."""
        rows, columns = answer.value["size"]
        cells = np.frombuffer(decode_runs(answer.value["runs"], (rows, columns)), dtype=np.uint8).reshape(rows, columns)
        if (rows, columns) != (height, width):
            cells = cells[np.arange(height) * rows // height][:, np.arange(width) * columns // width]
        results = []
        for index in np.unique(cells).tolist():
            if index == 0:
                continue
            label = IGNORE_LABEL if index == IGNORE else head.classes[index - 1]
            value = {"format": "rle", "rle": encode_brush(cells == index), self.RESULT_TYPE: [label]}
            results.append(region(head, self.RESULT_TYPE, f"class-{index}", value, width, height))
        return results

    def decode(self, head: Head, results: Sequence[Result], width: int, height: int) -> Answer:
        cells = np.zeros((height, width), dtype=np.uint8)
        for result in results:
            label = label_of(head, result, self.RESULT_TYPE)
            value = value_of(head, result)
            if value.get("format") != "rle":
                raise ResultError(f"a mask of head {head.name!r} is in format {value.get('format')!r}, not 'rle'")
            shown = result.get("original_width", width), result.get("original_height", height)
            if shown != (width, height):
                raise ResultError(
                    f"a mask of head {head.name!r} was drawn on {shown[0]}x{shown[1]}, the picture has {width}x{height}"
                )
            try:
                drawn = decode_brush(value.get("rle", []), width, height)
            except BrushCodeError as wrong:
                raise ResultError(f"a mask of head {head.name!r}: {wrong}") from wrong
            cells[drawn] = IGNORE if label == IGNORE_LABEL else head.classes.index(label) + 1
        return Answer(Kind.MASK, {"size": [height, width], "runs": _runs(cells)})


def _runs(cells: NDArray[np.uint8]) -> list[list[int]]:
    """As `engine.domain.answers.encode_runs`, which takes a second for a large picture, this milliseconds."""
    flat = cells.reshape(-1)
    starts = np.concatenate(([0], np.flatnonzero(flat[1:] != flat[:-1]) + 1))
    lengths = np.diff(np.append(starts, flat.size))
    return np.column_stack((flat[starts].astype(np.int64), lengths)).tolist()
