"""Polylines: lines with an identity each (lane markings, road edges).

Cells on a line are found by a heatmap; each of them says where the line passes (an offset under a cell) and where the
line starts (its end nearest to the vehicle). Cells whose starts agree are one line: this is GANet (arXiv:2204.09043).
Starts lie far apart at the foot of the picture even where lines meet in the distance, so a coarse vote is enough at a
low resolution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.heads.head import Decoded, Head, HeadSpec, LabelError, annotated_mask
from models.layers import Tower
from models.losses import binary_entropy, clamp_log_scale, heatmap_focal, laplace_nll
from models.targets import cell_centres, cells_near_polyline, nearest_on_polyline

PRIOR = 0.05
REGRESSED = (
    1.5  # cells within this distance of a line, in cells, learn its offset and start: all that may pass `min_score`
)
START_UNIT = 8.0  # cells: keeps the start's vector near 1
FAR = 12.0  # cells from its start at which a cell's vote may be off by twice as much
FEWEST = 4  # votes that make a start
SHORTEST = 4.0  # cells
MOST_LINES = 64


@dataclass(frozen=True)
class PolylinesLabel:
    lines: tuple[np.ndarray, ...]  # (P, 2) float32 each, fractions
    classes: tuple[int, ...]
    annotated: tuple[bool, ...]


@dataclass(frozen=True)
class PolylinesOutputs:
    heat: Tensor  # (B, K, h, w) logits
    offset: Tensor  # (B, 2, h, w): from the cell's centre to the nearest point of the line, in cells
    start: Tensor  # (B, 2, h, w): from that point to the line's start, in units of 8 cells
    log_scale: Tensor  # (B, 2, h, w): Laplace scale of the offset and of the start


@dataclass(frozen=True)
class PolylinesTargets:
    heat: Tensor  # (B, K, h, w)
    heat_weight: Tensor  # (B, K, h, w)
    offset: Tensor  # (B, 2, h, w)
    start: Tensor  # (B, 2, h, w)
    near: Tensor  # (B, 1, h, w): 1 within reach of a line


class PolylinesHead(Head[PolylinesLabel, PolylinesOutputs, PolylinesTargets]):
    """``options``: `min_score` (0.45) of a cell, `cluster_radius` (5 cells) between the starts of one line's cells."""

    def __init__(self, spec: HeadSpec, size: tuple[int, int], channels: int, width: int) -> None:
        super().__init__(spec, size)
        self.min_score = float(spec.options.get("min_score", 0.45))
        self.radius = float(spec.options.get("cluster_radius", 5.0))
        self.heat = Tower(channels, width, len(spec.classes))
        self.geometry = Tower(channels, width, 6)

    def parse(
        self, value: Mapping[str, Any], array: np.ndarray | None, annotated: Sequence[str] | None
    ) -> PolylinesLabel:
        lines, classes = [], []
        for item in value["lines"]:
            points = np.asarray(item["points"], dtype=np.float32)
            if points.ndim != 2 or points.shape[1] != 2 or len(points) < 2 or not np.isfinite(points).all():
                raise LabelError("a line must have two points or more, each [x, y] and finite")
            lines.append(points)
            classes.append(self.spec.class_index(item["class"]))
        return PolylinesLabel(tuple(lines), tuple(classes), tuple(annotated_mask(self.spec, annotated)))

    def mirror(self, label: PolylinesLabel) -> PolylinesLabel:
        table = self.spec.mirrored_classes()
        lines = tuple(np.stack((1 - line[:, 0], line[:, 1]), axis=1) for line in label.lines)
        annotated = tuple(label.annotated[other] for other in table)
        return PolylinesLabel(lines, tuple(table[k] for k in label.classes), annotated)

    def learnable(self, label: PolylinesLabel) -> bool:
        return len(label.lines) > 0 or any(label.annotated)

    def targets(self, labels: Sequence[PolylinesLabel]) -> PolylinesTargets:
        n, k = len(labels), len(self.spec.classes)
        heat, heat_weight = np.zeros((n, k, *self.grid), np.float32), np.ones((n, k, *self.grid), np.float32)
        offset, start = np.zeros((n, 2, *self.grid), np.float32), np.zeros((n, 2, *self.grid), np.float32)
        near = np.zeros((n, 1, *self.grid), np.float32)
        for i, label in enumerate(labels):
            heat_weight[i][~np.array(label.annotated)] = 0
            self._draw(label, heat[i], heat_weight[i], offset[i], start[i], near[i, 0])
        return PolylinesTargets(*(torch.from_numpy(a) for a in (heat, heat_weight, offset, start, near)))

    def _draw(
        self,
        label: PolylinesLabel,
        heat: np.ndarray,
        heat_weight: np.ndarray,
        offset: np.ndarray,
        start: np.ndarray,
        near: np.ndarray,
    ) -> None:
        centres = cell_centres(self.grid)
        closest = np.full(self.grid, np.inf, np.float32)
        for points, k in zip(label.lines, label.classes, strict=True):
            cells = points * np.array([self.grid[1], self.grid[0]], dtype=np.float32)
            foot = cells[0] if cells[0, 1] >= cells[-1, 1] else cells[-1]
            rows, columns = np.nonzero(cells_near_polyline(cells, self.grid, reach=3))
            centre = centres[rows, columns]  # (N, 2)
            nearest = nearest_on_polyline(cells, centre)
            distance = np.sqrt(((nearest - centre) ** 2).sum(-1))
            glow = np.exp(-0.5 * (np.maximum(distance - 0.5, 0) / 0.5) ** 2)
            heat[k, rows, columns] = np.maximum(heat[k, rows, columns], glow)
            on = distance <= 0.5
            heat_weight[k, rows[on], columns[on]] = 1.0
            own = (distance <= REGRESSED) & (distance < closest[rows, columns])
            at = rows[own], columns[own]
            closest[at] = distance[own]
            offset[:, at[0], at[1]] = (nearest - centre)[own].T
            start[:, at[0], at[1]] = (foot - nearest)[own].T / START_UNIT
            near[at] = 1.0

    def forward(self, pyramid: list[Tensor]) -> PolylinesOutputs:
        heat, geometry = self.heat(pyramid[0]), self.geometry(pyramid[0])
        return PolylinesOutputs(heat, geometry[:, :2], geometry[:, 2:4], geometry[:, 4:])

    def output_bias(self) -> None:
        self.heat.start_from(float(np.log(PRIOR / (1 - PRIOR))))

    def classes_answered(self) -> int:
        return self.heat.out.out_channels

    def loss(self, outputs: PolylinesOutputs, targets: PolylinesTargets) -> Tensor:
        heat = heatmap_focal(outputs.heat, targets.heat, targets.heat_weight)
        offset = laplace_nll(
            outputs.offset, outputs.log_scale[:, :1].expand_as(outputs.offset), targets.offset, targets.near
        )
        start = laplace_nll(
            outputs.start, outputs.log_scale[:, 1:].expand_as(outputs.start), targets.start, targets.near
        )
        return heat + offset + start

    def decode(self, outputs: PolylinesOutputs) -> list[Decoded]:
        score = outputs.heat.sigmoid().cpu().numpy()
        centres = cell_centres(self.grid)
        points = centres + outputs.offset.permute(0, 2, 3, 1).cpu().numpy()  # (B, h, w, 2)
        votes = points + START_UNIT * outputs.start.permute(0, 2, 3, 1).cpu().numpy()
        return [self._decode_one(*frame) for frame in zip(score, points, votes, strict=True)]

    def _decode_one(self, score: np.ndarray, points: np.ndarray, votes: np.ndarray) -> Decoded:
        size = np.array([self.grid[1], self.grid[0]], dtype=np.float32)
        best = score.max(0)
        cells = best >= self.min_score
        points, votes, best, score = points[cells], votes[cells], best[cells], score[:, cells]
        lines: list[dict[str, Any]] = []
        # Geometry is shared by the classes, so cells are clustered first and each line's class is voted for after.
        for members in _cluster(points, votes, self.radius):
            line = _trace(points[members], best[members])
            if line is not None:
                k = int(score[:, members].sum(1).argmax())
                shape = [[round(float(x), 5), round(float(y), 5)] for x, y in np.clip(line / size, 0, 1)]
                certainty = round(float(score[k, members].mean()), 5)
                lines.append({"class": self.spec.classes[k], "points": shape, "score": certainty})
        lines.sort(key=lambda item: -item["score"])
        return Decoded({"lines": [{"id": str(i), **line} for i, line in enumerate(lines)]})

    def uncertainty(self, outputs: PolylinesOutputs) -> Tensor:
        """Mean over the cells, each weighted by how likely it lies on a line, of its score's entropy plus the
        Laplace scale of its offset in cells: near 0 for a picture surely without lines."""
        score = outputs.heat.sigmoid().amax(1)  # (B, h, w)
        scale = clamp_log_scale(outputs.log_scale[:, 0]).exp()
        return (score * (binary_entropy(score) + scale)).sum((1, 2)) / (score.sum((1, 2)) + 1.0)


def _cluster(points: np.ndarray, votes: np.ndarray, radius: float) -> list[np.ndarray]:
    """Indices of the points (N, 2) whose votes (N, 2) for a start agree. First the starts: the vote with the most
    neighbours gives one, in the neighbours' mean, and so on without them. Then each point joins the nearest start
    in its vote's reach, which grows with the distance, for a vote from afar is less exact."""
    starts = []
    left = votes
    while len(left):
        close = ((left[:, None] - left[None]) ** 2).sum(-1) <= radius**2
        seed = int(close.sum(1).argmax())
        if int(close[seed].sum()) < FEWEST:
            break
        starts.append(left[close[seed]].mean(0))
        left = left[((left - starts[-1]) ** 2).sum(-1) > radius**2]
        left = left[:0] if len(starts) >= MOST_LINES else left
    if not starts:
        return []
    apart = np.sqrt(((votes[:, None] - np.stack(starts)[None]) ** 2).sum(-1))  # (N, starts)
    reach = radius * (1 + np.sqrt(((votes - points) ** 2).sum(-1)) / FAR)
    nearest = np.where(apart.min(1) <= reach, apart.argmin(1), -1)
    return [np.flatnonzero(nearest == i) for i in range(len(starts)) if (nearest == i).any()]


def _trace(points: np.ndarray, weights: np.ndarray) -> np.ndarray | None:
    """One line's scattered points (N, 2), in cells, to a polyline with one point a row of cells, from the foot up; a
    line that is wider than twice its height goes by columns. None for one under SHORTEST cells: too short to be
    told from noise."""
    span = np.ptp(points, axis=0)
    if float(np.hypot(*span)) < SHORTEST:
        return None
    along = 0 if span[0] > 2 * span[1] else 1
    bins = np.floor(points[:, along]).astype(np.int64)
    rows = [bins == b for b in np.unique(bins)]
    if len(rows) < 3:
        return None
    line = np.array([np.average(points[row], axis=0, weights=weights[row]) for row in rows])
    line[1:-1] = 0.25 * line[:-2] + 0.5 * line[1:-1] + 0.25 * line[2:]
    # A mean of the last row stops short of the line's end: go on in the line's direction to the outermost point.
    for end, before, outermost in ((0, 1, points[:, along].min()), (-1, -2, points[:, along].max())):
        step = line[end] - line[before]
        line[end] = line[end] + step * (outermost - line[end, along]) / step[along]
    return line[::-1] if along == 1 else line
