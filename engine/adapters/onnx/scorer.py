"""The Scorer for ONNX files, on the CPU, in this process."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence

from engine.adapters.onnx.declaration import parse
from engine.adapters.onnx.network import OnnxNetwork
from engine.domain.formats import ModelFormat
from engine.ports import BlobCorrupt, FrameScore, ModelFiles, Picture


class OnnxScorer:
    """Answers for pictures with ONNX files, and keeps the last few loaded.

    The very bytes that were hashed are those that are loaded: nothing is opened by its path again.
    """

    def __init__(self, threads: int = 1, kept: int = 3) -> None:
        self._threads = threads
        self._kept = kept
        self._networks: OrderedDict[str, OnnxNetwork] = OrderedDict()
        self._lock = threading.Lock()

    def score(self, model: ModelFiles, pictures: Sequence[Picture]) -> list[FrameScore]:
        """One FrameScore per picture, in order. Raises BlobCorrupt, DoesNotFit, and Invalid for a config that is no
        declaration."""
        return self._network(model).score(pictures)

    def embed(self, model: ModelFiles, pictures: Sequence[Picture]) -> list[tuple[float, ...]]:
        """The embeddings alone."""
        return self._network(model).embed(pictures)

    def _network(self, model: ModelFiles) -> OnnxNetwork:
        if model.format != ModelFormat.ONNX:
            raise ValueError(f"this scorer opens {ModelFormat.ONNX}, not {model.format}")
        declared = parse(model.config)
        key = f"{model.sha256} {declared.model_dump_json()} {[head.to_document() for head in model.heads]}"
        with self._lock:
            if key not in self._networks:
                content = model.weights.read_bytes()
                found = hashlib.sha256(content).hexdigest()
                if not model.sha256 or found != model.sha256:
                    raise BlobCorrupt(f"the ONNX file hashes to {found}, not to {model.sha256 or 'what is on record'}")
                self._networks[key] = OnnxNetwork(content, declared, model.heads, self._threads)
                while len(self._networks) > self._kept:
                    self._networks.popitem(last=False)
            self._networks.move_to_end(key)
            return self._networks[key]
