"""An ONNX file, loaded, with its declaration: pictures in, answers out. The API never imports this.

The file was checked when it was registered: no external data, standard operators alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from engine.adapters.onnx.declaration import Declaration
from engine.adapters.onnx.decode import ShapeMismatch, told
from engine.adapters.onnx.pictures import placed
from engine.adapters.picture_embedding import feature_embedding, thumbnail_embedding
from engine.domain.answers import Answer
from engine.domain.ontology import Head
from engine.ports import FrameScore, Picture

_TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(uint8)": "uint8"}
_ERRORS_ONLY = 3


class DoesNotFit(ValueError):
    """The file is not as its declaration says; the message names what differs."""


class OnnxNetwork:
    """One session. Raises DoesNotFit where inputs or outputs are not those that were declared."""

    def __init__(self, content: bytes, declared: Declaration, heads: Sequence[Head], threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        try:
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has a class of its own for each status, and no base of them
            raise DoesNotFit(f"onnxruntime can't load the file: {_first_line(error)}") from error
        self._declared = declared
        self._heads = {head.name: head for head in heads}
        self._fixed_batch = self._check()

    def score(self, pictures: Sequence[Picture]) -> list[FrameScore]:
        """One FrameScore per picture, in order. Raises DoesNotFit."""
        found: list[FrameScore] = []
        size = self._declared.input.batch
        for first in range(0, len(pictures), size):
            found += self._batch(pictures[first : first + size])
        return found

    def embed(self, pictures: Sequence[Picture]) -> list[tuple[float, ...]]:
        """The embeddings alone; where they come from the pictures the file is not run."""
        if self._declared.embedding is None:
            return [thumbnail_embedding(picture) for picture in pictures]
        return [score.embedding for score in self.score(pictures)]

    def _batch(self, pictures: Sequence[Picture]) -> list[FrameScore]:
        spec = self._declared.input
        made = [placed(picture, spec) for picture in pictures]
        values = [cells for cells, _ in made]
        if self._fixed_batch:
            values += [values[-1]] * (spec.batch - len(values))
        try:
            arrays = self._session.run(self._declared.outputs, {spec.name: np.stack(values)})
        except Exception as error:
            raise DoesNotFit(f"the file can't be run: {_first_line(error)}") from error
        outputs = {
            name: self._by_picture(name, array, len(values))
            for name, array in zip(self._declared.outputs, arrays, strict=True)
        }
        scores = []
        for place, (picture, (_, placement)) in enumerate(zip(pictures, made, strict=True)):
            own = {name: arrays[place] for name, arrays in outputs.items()}
            answers: dict[str, Answer] = {}
            uncertainty: dict[str, float] = {}
            for head in self._declared.heads:
                try:
                    answers[head.name], uncertainty[head.name] = told(head, self._heads[head.name], own, placement)
                except ShapeMismatch as error:
                    raise DoesNotFit(f"head {head.name!r}: {error}") from error
            declared = self._declared.embedding
            embedding = feature_embedding(own[declared.output]) if declared else thumbnail_embedding(picture)
            scores.append(FrameScore(answers, uncertainty, embedding))
        return scores

    def _by_picture(self, name: str, array: Any, batch: int) -> NDArray[Any]:
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
            raise DoesNotFit(f"output {name!r} is no tensor of numbers")
        boxes = {
            output
            for head in self._declared.heads
            if head.kind == "boxes"
            for output in head.outputs.model_dump(exclude={"order", "objectness"}, exclude_none=True).values()
        }
        # Detectors that end with their own suppression often have no batch: (N, 4), (N,) and (N,).
        if batch == 1 and name in boxes and self._bare(array, name):
            return array[None]
        if array.ndim == 0 or len(array) != batch:
            raise DoesNotFit(f"output {name!r} has the shape {array.shape} for a batch of {batch}")
        return array

    def _bare(self, array: NDArray[Any], name: str) -> bool:
        for head in self._declared.heads:
            if head.kind != "boxes":
                continue
            names = head.outputs.model_dump()
            if name in (names.get("boxes"), names.get("packed")):
                return array.ndim == 2
            if name in (names.get("scores"), names.get("labels")):
                return array.ndim == (1 if names.get("labels") else 2)
        return False

    def _check(self) -> bool:
        """Hold inputs and outputs against the declaration; returns whether the batch is fixed. Raises DoesNotFit."""
        spec = self._declared.input
        inputs = {given.name: given for given in self._session.get_inputs()}
        if set(inputs) != {spec.name}:
            there = ", ".join(map(repr, inputs)) or "none"
            raise DoesNotFit(
                f"the file's inputs are {there}; it must have one, and the declaration names {spec.name!r}"
            )
        given = inputs[spec.name]
        if _TYPES.get(given.type) != spec.dtype:
            raise DoesNotFit(f"input {spec.name!r} takes {given.type}; the declaration says {spec.dtype}")
        size = [3, spec.height, spec.width] if spec.layout == "nchw" else [spec.height, spec.width, 3]
        wanted = [spec.batch, *size]
        shape = list(given.shape)
        if len(shape) != 4 or any(isinstance(s, int) and s != w for s, w in zip(shape, wanted, strict=False)):
            raise DoesNotFit(f"input {spec.name!r} has the shape {shape}; the declaration makes it {wanted}")
        outputs = {output.name for output in self._session.get_outputs()}
        if absent := [name for name in self._declared.outputs if name not in outputs]:
            raise DoesNotFit(f"the file has no output {absent[0]!r}; it has {', '.join(sorted(outputs))}")
        return isinstance(shape[0], int)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:500] if str(error).strip() else type(error).__name__
