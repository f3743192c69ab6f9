"""Boxes: a dense, anchor-free detector on one grid of cells.

Each cell says how much it is a centre of each class and, where it lies near one, the box around it, as in FCOS
(arXiv:1904.01355). Centres are a heatmap with Gaussians that follow the box's shape, and every cell under a Gaussian
learns the box, weighted by it: this is TTFNet (arXiv:1909.00700), made to train in few steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torchvision.ops import nms

from models.heads.head import Decoded, Head, HeadSpec, LabelError, annotated_mask
from models.layers import Tower
from models.losses import binary_entropy, generalised_iou, heatmap_focal, laplace_nll
from models.targets import cell_centres

PRIOR = 0.05  # what a cell's heat starts from, so that the many empty cells don't drown the first steps
REGRESSED = 0.3  # cells under this much of a Gaussian don't learn its box
UNCERTAIN_PEAKS = 20


@dataclass(frozen=True)
class BoxesLabel:
    boxes: np.ndarray  # (N, 4) float32 [x0, y0, x1, y1], fractions
    classes: np.ndarray  # (N,) int64
    ignore: np.ndarray  # (M, 4) float32
    annotated: tuple[bool, ...]


@dataclass(frozen=True)
class BoxesOutputs:
    heat: Tensor  # (B, K, h, w) logits
    box: Tensor  # (B, 4, h, w): centre's offset from the cell's centre in cells (x, y), log of size in cells (w, h)
    log_scale: Tensor  # (B, 2, h, w): Laplace scale of the offset and of the size


@dataclass(frozen=True)
class BoxesTargets:
    heat: Tensor  # (B, K, h, w) in [0, 1]
    heat_weight: Tensor  # (B, K, h, w): 0 in ignored regions and for classes that were not annotated
    box: Tensor  # (B, 4, h, w) as in the outputs
    box_weight: Tensor  # (B, 1, h, w)


class BoxesHead(Head[BoxesLabel, BoxesOutputs, BoxesTargets]):
    """``options``: `min_score` (0.05) and `max_boxes` (50) of an answer."""

    def __init__(self, spec: HeadSpec, size: tuple[int, int], channels: int, width: int) -> None:
        super().__init__(spec, size)
        self.min_score = float(spec.options.get("min_score", 0.05))
        self.max_boxes = int(spec.options.get("max_boxes", 50))
        self.heat = Tower(channels, width, len(spec.classes))
        self.box = Tower(channels, width, 6)

    def parse(self, value: Mapping[str, Any], array: np.ndarray | None, annotated: Sequence[str] | None) -> BoxesLabel:
        objects = value["objects"]
        boxes = _box_array([item["box"] for item in objects])
        classes = np.array([self.spec.class_index(item["class"]) for item in objects], dtype=np.int64)
        ignore = _box_array(value.get("ignore") or [])
        return BoxesLabel(boxes, classes, ignore, tuple(annotated_mask(self.spec, annotated)))

    def mirror(self, label: BoxesLabel) -> BoxesLabel:
        table = self.spec.mirrored_classes()
        classes = np.array(table, dtype=np.int64)[label.classes]
        annotated = tuple(label.annotated[other] for other in table)
        return BoxesLabel(_mirror_boxes(label.boxes), classes, _mirror_boxes(label.ignore), annotated)

    def learnable(self, label: BoxesLabel) -> bool:
        return len(label.boxes) > 0 or any(label.annotated)

    def targets(self, labels: Sequence[BoxesLabel]) -> BoxesTargets:
        shape = (len(labels), len(self.spec.classes), *self.grid)
        heat, box = np.zeros(shape, np.float32), np.zeros((shape[0], 4, *self.grid), np.float32)
        heat_weight, box_weight = np.ones(shape, np.float32), np.zeros((shape[0], 1, *self.grid), np.float32)
        for i, label in enumerate(labels):
            self._draw(label, heat[i], heat_weight[i], box[i], box_weight[i, 0])
        return BoxesTargets(*(torch.from_numpy(a) for a in (heat, heat_weight, box, box_weight)))

    def _draw(
        self, label: BoxesLabel, heat: np.ndarray, heat_weight: np.ndarray, box: np.ndarray, box_weight: np.ndarray
    ) -> None:
        height, width = self.grid
        centres = cell_centres(self.grid)
        scale = np.array([width, height, width, height], dtype=np.float32)
        for x0, y0, x1, y1 in label.ignore * scale:
            inside = (
                (centres[..., 0] >= x0) & (centres[..., 0] <= x1) & (centres[..., 1] >= y0) & (centres[..., 1] <= y1)
            )
            heat_weight[:, inside] = 0
        heat_weight[~np.array(label.annotated)] = 0
        boxes = label.boxes * scale
        nearest = np.zeros(self.grid, np.float32)  # the strongest Gaussian so far
        # Small boxes are drawn last: where two meet, the cell belongs to the smaller, which has fewer cells.
        for n in np.argsort(-(boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]), kind="stable"):
            x0, y0, x1, y1 = boxes[n]
            size = np.maximum(np.array([x1 - x0, y1 - y0], dtype=np.float32), 1e-2)
            middle = np.array([(x0 + x1) / 2, (y0 + y1) / 2], dtype=np.float32)
            sigma = np.maximum(size * 0.54 / 3, 0.5)  # TTFNet's alpha
            gaussian = np.exp(-0.5 * (((centres - middle) / sigma) ** 2).sum(-1))
            column, row = min(int(middle[0]), width - 1), min(int(middle[1]), height - 1)
            gaussian[row, column] = 1.0
            k = label.classes[n]
            np.maximum(heat[k], gaussian, out=heat[k])
            heat_weight[k, row, column] = 1.0
            own = (gaussian >= REGRESSED) & (gaussian >= nearest * 0.8)
            nearest[own] = gaussian[own]
            box[:2, own] = (middle - centres[own]).T
            box[2:, own] = np.log(size)[:, None]
            box_weight[own] = gaussian[own]

    def forward(self, pyramid: list[Tensor]) -> BoxesOutputs:
        heat, box = self.heat(pyramid[0]), self.box(pyramid[0])
        return BoxesOutputs(heat, box[:, :4], box[:, 4:])

    def output_bias(self) -> None:
        self.heat.start_from(float(np.log(PRIOR / (1 - PRIOR))))
        self.box.start_from(1.0, slice(2, 4))  # about 3 cells wide and high

    def classes_answered(self) -> int:
        return self.heat.out.out_channels

    def loss(self, outputs: BoxesOutputs, targets: BoxesTargets) -> Tensor:
        heat = heatmap_focal(outputs.heat, targets.heat, targets.heat_weight)
        log_scale = outputs.log_scale.repeat_interleave(2, dim=1)
        box = laplace_nll(outputs.box, log_scale, targets.box, targets.box_weight)
        near = targets.box_weight[:, 0] > 0  # (B, h, w)
        overlap = generalised_iou(_corners(outputs.box)[near], _corners(targets.box)[near])
        weight = targets.box_weight[:, 0][near]
        giou = ((1 - overlap) * weight).sum() / weight.sum().clamp(min=1e-6)
        return heat + 0.5 * box + giou

    def decode(self, outputs: BoxesOutputs) -> list[Decoded]:
        score = outputs.heat.sigmoid()
        score = score * (
            score == functional.max_pool2d(score, 3, stride=1, padding=1)
        )  # a centre is the peak among its neighbours
        height, width = self.grid
        centres = torch.from_numpy(cell_centres(self.grid)).to(score.device)
        corners = _corners(outputs.box)  # relative to the cell's centre, in cells
        corners = corners + torch.cat((centres, centres), dim=-1)
        corners = (corners / corners.new_tensor([width, height, width, height])).clamp(0, 1)
        return [self._decode_one(s, c) for s, c in zip(score, corners, strict=True)]

    def _decode_one(self, score: Tensor, corners: Tensor) -> Decoded:
        objects: list[dict[str, Any]] = []
        for k, name in enumerate(self.spec.classes):
            rows, columns = torch.nonzero(score[k] >= self.min_score, as_tuple=True)
            boxes, scores = corners[rows, columns], score[k, rows, columns]
            whole = ((boxes[:, 2:] - boxes[:, :2]) > 1e-4).all(1)
            boxes, scores = boxes[whole], scores[whole]
            kept = nms(boxes, scores, 0.5)
            for box, s in zip(boxes[kept].cpu().tolist(), scores[kept].cpu().tolist(), strict=True):
                objects.append({"class": name, "box": [round(v, 5) for v in box], "score": round(s, 5)})
        objects.sort(key=lambda item: -item["score"])
        return Decoded({"objects": [{"id": str(i), **item} for i, item in enumerate(objects[: self.max_boxes])]})

    def uncertainty(self, outputs: BoxesOutputs) -> Tensor:
        """Binary entropy of the top detections' scores, weighted by score: near 0 for an empty picture and for sure
        boxes."""
        score = outputs.heat.sigmoid()
        score = score * (score == functional.max_pool2d(score, 3, stride=1, padding=1))
        top = score.flatten(1).topk(min(UNCERTAIN_PEAKS, score[0].numel()), dim=1).values
        return (top * binary_entropy(top)).sum(1) / (top.sum(1) + 0.1)


def _corners(box: Tensor) -> Tensor:
    """(B, 4, h, w) of offsets and log sizes -> (B, h, w, 4) corners relative to the cell's centre, in cells."""
    offset = box[:, :2].permute(0, 2, 3, 1)
    half = box[:, 2:].clamp(-5.0, 6.0).exp().permute(0, 2, 3, 1) / 2
    return torch.cat((offset - half, offset + half), dim=-1)


def _box_array(boxes: Sequence[Sequence[float]]) -> np.ndarray:
    array = np.asarray(boxes, dtype=np.float32).reshape(-1, 4)
    if not np.isfinite(array).all():
        raise LabelError("a box holds a number that is not finite")
    if len(array) and ((array[:, 2:] <= array[:, :2]).any() or array.min() < -1e-3 or array.max() > 1 + 1e-3):
        raise LabelError("a box must be [x0, y0, x1, y1] with an area, inside the picture")
    return array


def _mirror_boxes(boxes: np.ndarray) -> np.ndarray:
    return np.stack((1 - boxes[:, 2], boxes[:, 1], 1 - boxes[:, 0], boxes[:, 3]), axis=1)
