"""Reads a training folder and draws its batches.

A batch is a function of (seed, step) alone, so that a resumed run draws what the killed one would have drawn.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.augment import change_light, mirror
from models.heads.head import LabelError
from models.hydranet import HydraNet, normalise
from models.pictures import read_picture

CACHED_BYTES = 1 << 30


class FolderError(ValueError):
    """The training folder can't be learned from; the message names the sample and the head."""


@dataclass(frozen=True)
class Sample:
    """One line of samples.jsonl, its labels not yet read."""

    id: str
    picture: Path
    labels: Mapping[str, Mapping[str, Any]]
    annotated_classes: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Batch:
    """`pictures` (B, 3, H, W), normalised. By head: which of them are labelled for it, and their labels in that
    order."""

    pictures: Tensor
    rows: Mapping[str, list[int]]
    labels: Mapping[str, list[Any]]


def read_samples(folder: Path) -> list[Sample]:
    """samples.jsonl. Raises FolderError."""
    samples = []
    for number, line in enumerate((folder / "samples.jsonl").read_text().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
            samples.append(
                Sample(
                    id=str(document["id"]),
                    picture=folder / document["picture"],
                    labels=document["labels"],
                    annotated_classes=document.get("annotated_classes") or {},
                )
            )
        except (KeyError, TypeError, json.JSONDecodeError) as wrong:
            raise FolderError(f"samples.jsonl line {number} can't be read: {wrong!r}") from wrong
    return samples


class TrainingSet:
    """The samples of a folder, decoded on demand and kept as far as the cache goes."""

    def __init__(self, folder: Path, samples: Sequence[Sample], net: HydraNet) -> None:
        self.folder = folder
        self.samples = samples
        self.net = net
        self._pictures: OrderedDict[int, Tensor] = OrderedDict()
        self._labels: OrderedDict[int, dict[str, Any]] = OrderedDict()
        size = net.config.height * net.config.width
        self._room = max(16, CACHED_BYTES // (8 * size))  # a picture is 3 bytes a pixel, its labels about as much

    def picture(self, index: int) -> Tensor:
        """(3, H, W) uint8. Raises FolderError."""
        if index not in self._pictures:
            sample = self.samples[index]
            try:
                self._pictures[index] = read_picture(sample.picture, self.net.config.height, self.net.config.width)
            except OSError as wrong:
                raise FolderError(f"sample {sample.id}: its picture can't be read: {wrong}") from wrong
            _trim(self._pictures, self._room)
        return self._pictures[index]

    def labels(self, index: int) -> dict[str, Any]:
        """Labels by head, those that say nothing left out. Raises FolderError for one that its head can't learn
        from."""
        if index not in self._labels:
            self._labels[index] = self._parse(self.samples[index])
            _trim(self._labels, self._room)
        return self._labels[index]

    def _parse(self, sample: Sample) -> dict[str, Any]:
        labels = {}
        for name, document in sample.labels.items():
            if name not in self.net.heads:
                continue
            head = self.net.head(name)
            try:
                path = document.get("array")
                array = np.load(self.folder / path, allow_pickle=False) if path else None
                label = head.parse(document["value"], array, sample.annotated_classes.get(name))
            except (LabelError, ValueError, KeyError, TypeError, OSError) as wrong:
                raise FolderError(f"sample {sample.id}, head {name!r}: {wrong}") from wrong
            if head.learnable(label):
                labels[name] = label
        return labels

    def labelled(self) -> dict[str, list[int]]:
        """By head, the samples that are labelled for it."""
        found: dict[str, list[int]] = {name: [] for name in self.net.heads}
        for index in range(len(self.samples)):
            for name in self.labels(index):
                found[name].append(index)
        return found


class Batches:
    """Each place in a batch belongs to a head in turn and takes the next sample labelled for it, in an order
    shuffled anew each round; so every head meets its labels, however few they are. A sample brings along its
    labels for the other heads."""

    def __init__(
        self, data: TrainingSet, labelled: Mapping[str, list[int]], seed: int, size: int, augmented: bool
    ) -> None:
        self.data = data
        self.streams = [rows for rows in labelled.values() if rows]
        self.seed = seed
        self.size = size
        self.augmented = augmented
        self._orders: dict[tuple[int, int], np.ndarray] = {}

    def batch(self, step: int) -> Batch:
        pictures: list[Tensor] = []
        rows: dict[str, list[int]] = {}
        labels: dict[str, list[Any]] = {}
        for place in range(self.size):
            picture, found = self._draw(step * self.size + place)
            pictures.append(picture.float())
            for name, label in found.items():
                rows.setdefault(name, []).append(place)
                labels.setdefault(name, []).append(label)
        return Batch(normalise(torch.stack(pictures)), rows, labels)

    def _draw(self, number: int) -> tuple[Tensor, dict[str, Any]]:
        stream = number % len(self.streams)
        turn, place = divmod(number // len(self.streams), len(self.streams[stream]))
        index = self.streams[stream][self._order(stream, turn)[place]]
        picture, labels = self.data.picture(index), self.data.labels(index)
        if not self.augmented:
            return picture, labels
        rng = np.random.default_rng((self.seed, 1, number))
        if rng.random() < 0.5:
            picture, labels = mirror(self.data.net, picture, labels)
        return change_light(picture, rng), labels

    def _order(self, stream: int, turn: int) -> np.ndarray:
        key = (stream, turn)
        if key not in self._orders:
            if len(self._orders) > 4 * len(self.streams):
                self._orders.clear()
            rng = np.random.default_rng((self.seed, 2, stream, turn))
            self._orders[key] = rng.permutation(len(self.streams[stream]))
        return self._orders[key]


def pictures_in_order(data: TrainingSet, limit: int, size: int) -> Iterator[Tensor]:
    """Up to `limit` pictures, evenly spaced over the samples, in normalised batches of `size`."""
    count = min(limit, len(data.samples))
    chosen = [i * len(data.samples) // count for i in range(count)]
    for first in range(0, count, size):
        yield normalise(torch.stack([data.picture(i) for i in chosen[first : first + size]]))


def _trim(cache: OrderedDict[int, Any], room: int) -> None:
    while len(cache) > room:
        cache.popitem(last=False)
