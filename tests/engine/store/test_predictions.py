"""Predictions come back as they were, for all subjects or for one."""

from __future__ import annotations

import numpy as np

from engine.domain.answers import Answer
from engine.domain.ontology import Kind
from engine.store.predictions import Prediction, read, write


def predictions() -> list[Prediction]:
    boxes = {"objects": [{"id": "1", "class": "car", "box": [0.1, 0.2, 0.3, 0.4], "score": 0.5}]}
    array = np.arange(6, dtype=np.float16).tobytes()
    return [
        Prediction("b", "objects", Answer(Kind.BOXES, boxes), 0.25),
        Prediction("a", "depth", Answer(Kind.DENSE_SCALAR, {"size": [2, 3]}, array), 1e-300),
        Prediction("b", "light", Answer(Kind.CHOICE, {"choice": "day"}), 0.0),
    ]


def test_they_come_back_as_they_were() -> None:
    assert read(write(predictions())) == predictions()
    assert read(write(predictions()), "b") == [predictions()[0], predictions()[2]]
    assert read(write(predictions()), "c") == []


def test_none_at_all_is_a_blob_too() -> None:
    assert read(write([])) == []


def test_the_same_predictions_are_the_same_bytes() -> None:
    assert write(predictions()) == write(predictions())
