"""The Scorer for HydraNet artifacts, in this process. Import it only where nothing forks afterwards."""

from __future__ import annotations

import io
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch

from engine.domain.answers import Answer
from engine.domain.ontology import Kind
from engine.ports import FrameScore, ModelFiles, Picture
from models.evaluate import embed, infer, load_network
from models.heads.head import Decoded
from models.hydranet import HydraNet
from models.pictures import picture_from_rgb

FORMAT = "hydranet-safetensors"


class TorchScorer:
    """Answers for pictures with HydraNet weights, and keeps the last few networks loaded."""

    def __init__(self, threads: int = 1, batch_size: int = 16, kept: int = 3) -> None:
        torch.set_num_threads(threads)
        self._batch_size = batch_size
        self._kept = kept
        self._networks: OrderedDict[tuple[str, str], HydraNet] = OrderedDict()
        self._lock = threading.Lock()

    def score(self, model: ModelFiles, pictures: Sequence[Picture]) -> list[FrameScore]:
        """One FrameScore per picture, in order. Raises ValueError for another format, or for a picture of too few
        bytes."""
        net = self._network(model)
        found = infer(net, [_resized(net, picture) for picture in pictures], self._batch_size)
        kinds = {spec.name: Kind(spec.kind) for spec in net.config.heads}
        return [
            FrameScore(
                answers={name: _answer(kinds[name], decoded) for name, decoded in one.answers.items()},
                uncertainty=dict(one.uncertainty),
                embedding=one.embedding,
            )
            for one in found
        ]

    def embed(self, model: ModelFiles, pictures: Sequence[Picture]) -> list[tuple[float, ...]]:
        """The embeddings alone."""
        net = self._network(model)
        return embed(net, [_resized(net, picture) for picture in pictures], self._batch_size)

    def _network(self, model: ModelFiles) -> HydraNet:
        if model.format != FORMAT:
            raise ValueError(f"this scorer opens {FORMAT}, not {model.format}")
        key = (str(model.weights), json.dumps(model.config, sort_keys=True))
        with self._lock:
            if key not in self._networks:
                self._networks[key] = load_network(model.weights, model.config)
                while len(self._networks) > self._kept:
                    self._networks.popitem(last=False)
            self._networks.move_to_end(key)
            return self._networks[key]


def _resized(net: HydraNet, picture: Picture) -> torch.Tensor:
    return picture_from_rgb(picture.rgb, picture.width, picture.height, net.config.height, net.config.width)


def _answer(kind: Kind, decoded: Decoded) -> Answer:
    return Answer(kind, decoded.value, None if decoded.array is None else _npy(decoded.array))


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
