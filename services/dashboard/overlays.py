"""Predictions in the form that the pages' canvases draw: geometry as it is, dense answers as small byte grids."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.domain.answers import Answer
from engine.domain.ontology import Head, Kind
from engine.queries.frame_views import PredictionSource
from engine.store.predictions import Prediction

LEVELS = 254  # a byte's values for what is known; 255 is "nothing here"
NOTHING = 255
MOST_CELLS = 160 * 320  # a grid of more cells is thinned: no overlay shows that many


def document(source: PredictionSource, predictions: Sequence[Prediction]) -> dict[str, Any]:
    """`{"model", "heads": [{"name", "kind", "classes", "unit", "quantile", ...}]}`, heads in the ontology's order."""
    said = {prediction.head: prediction for prediction in predictions}
    heads = []
    for head in source.ontology.heads:
        if head.name not in said:
            continue
        raw, quantile = source.scores.get(head.name, (said[head.name].uncertainty, None))
        heads.append(
            {
                "name": head.name,
                "kind": str(head.kind),
                "classes": list(head.classes),
                "unit": head.unit,
                "raw": raw if math.isfinite(raw) else None,
                "quantile": quantile,
                **_drawn(head, said[head.name].answer),
            }
        )
    return {"model": source.model_number, "model_id": str(source.model_id), "heads": heads}


def _drawn(head: Head, answer: Answer) -> dict[str, Any]:
    if head.kind is Kind.DENSE_SCALAR and answer.array is not None:
        return _scalar_grid(_array(answer.array))
    if head.kind is Kind.DENSE_VECTOR and answer.array is not None:
        return _vector_grid(_array(answer.array))
    return {"value": answer.value}


def _array(data: bytes) -> NDArray[np.float32]:
    array = np.load(io.BytesIO(data), allow_pickle=False).astype(np.float32)
    step = max(1, math.ceil(math.sqrt(array.shape[0] * array.shape[1] / MOST_CELLS)))
    return array[::step, ::step]


def _scalar_grid(array: NDArray[np.float32]) -> dict[str, Any]:
    """(H, W) to bytes between its 2nd and 98th percentile, so that one wild cell doesn't flatten the rest."""
    known = np.isfinite(array)
    if not known.any():
        return {"grid": _grid(np.full(array.shape, NOTHING, np.uint8), 1), "low": None, "high": None}
    low, high = (float(value) for value in np.percentile(array[known], (2, 98)))
    scaled = np.clip((np.where(known, array, low) - low) / max(high - low, 1e-6), 0, 1) * LEVELS
    levels = np.where(known, np.rint(scaled), NOTHING).astype(np.uint8)
    return {"grid": _grid(levels, 1), "low": low, "high": high}


def _vector_grid(array: NDArray[np.float32]) -> dict[str, Any]:
    """(H, W, C) to three bytes a cell, as normal maps are drawn: -1 to 1 becomes dark to bright in each axis."""
    shown = np.zeros((*array.shape[:2], 3), np.float32)
    shown[..., : min(3, array.shape[2])] = array[..., :3]
    known = np.isfinite(shown).all(axis=-1, keepdims=True)
    largest = float(np.abs(shown[np.broadcast_to(known, shown.shape)]).max(initial=1e-6))
    levels = np.rint((np.where(known, shown, 0) / max(largest, 1.0) + 1) / 2 * LEVELS)
    return {"grid": _grid(np.where(known, levels, NOTHING).astype(np.uint8), 3), "low": -largest, "high": largest}


def _grid(cells: NDArray[np.uint8], channels: int) -> dict[str, Any]:
    height, width = cells.shape[:2]
    data = base64.b64encode(np.ascontiguousarray(cells).tobytes()).decode()
    return {"size": [height, width], "channels": channels, "data": data}
