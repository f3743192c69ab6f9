"""Losses that several kinds of head share. Every one is a mean over what was labelled, so frames without a label
weigh 0."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

BETA = 0.5


def heatmap_focal(logits: Tensor, heat: Tensor, weights: Tensor) -> Tensor:
    """Penalty-reduced focal loss on a heatmap (CenterNet, arXiv:1904.07850, equation 1).

    logits, heat, weights (B, K, H, W). Heat is 1 on positives and falls off around them; a weight of 0 gives no loss at
    all (ignored places, classes that were not annotated). Sum over all cells per positive, one positive a frame at
    least.
    """
    p = torch.sigmoid(logits)
    positive = (heat > 0.999).to(logits.dtype)
    at_positive = positive * (1 - p) ** 2 * functional.logsigmoid(logits)
    elsewhere = (1 - positive) * (1 - heat) ** 4 * p**2 * functional.logsigmoid(-logits)
    count = torch.clamp((positive * weights).sum(), min=float(logits.shape[0]))
    return -((at_positive + elsewhere) * weights).sum() / count


def laplace_nll(mean: Tensor, log_scale: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Negative log likelihood of a Laplace distribution, |t - m| / b + log(2b), a mean weighted by `weights` (same
    shape or broadcast). `target` must be finite, also where the weight is 0.

    Each cell counts by the square root of its scale, without gradient (beta-NLL, arXiv:2203.09168, beta 0.5): else the
    gradient grows as 1 / b, and a head that has become sure of itself takes the trunk over.
    """
    log_scale = clamp_log_scale(log_scale)
    nll = (target - mean).abs() * torch.exp(-log_scale) + log_scale + 0.6931471805599453
    nll = nll * torch.exp(log_scale.detach() * BETA)
    weights = weights.expand_as(nll)
    return (nll * weights).sum() / torch.clamp(weights.sum(), min=1e-6)


def clamp_log_scale(log_scale: Tensor) -> Tensor:
    """A scale in [e^-4, e^4]: an unbounded one lets a few easy cells dominate the loss."""
    return 4.0 * torch.tanh(log_scale / 4.0)


def generalised_iou(a: Tensor, b: Tensor) -> Tensor:
    """GIoU (arXiv:1902.09630) of boxes [x0, y0, x1, y1], (..., 4) each -> (...,), in [-1, 1]."""
    area_a = (a[..., 2] - a[..., 0]) * (a[..., 3] - a[..., 1])
    area_b = (b[..., 2] - b[..., 0]) * (b[..., 3] - b[..., 1])
    low = torch.maximum(a[..., :2], b[..., :2])
    high = torch.minimum(a[..., 2:], b[..., 2:])
    inter = (high - low).clamp(min=0).prod(-1)
    union = area_a + area_b - inter
    hull = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).prod(-1)
    return inter / union.clamp(min=1e-6) - (hull - union) / hull.clamp(min=1e-6)


def marginal_cross_entropy(logits: Tensor, target: Tensor, allowed: Tensor, ignore: int) -> Tensor:
    """Cross entropy where background may hide classes that nobody looked for.

    logits (B, K + 1, H, W); target (B, H, W) int64 in 0..K or `ignore`; allowed (B, K + 1) bool: what a background cell
    may truly be (background itself, and every class that was not annotated). Such a cell costs -log of the sum of those
    probabilities, so a class that was not annotated gets no negative loss (marginal loss, arXiv:2007.03868).
    """
    log_p = functional.log_softmax(logits, dim=1)
    valid = target != ignore
    own = log_p.gather(1, target.masked_fill(~valid, 0).unsqueeze(1)).squeeze(1)
    if bool(allowed[:, 1:].any()):
        hidden = log_p.masked_fill(~allowed[:, :, None, None], float("-inf")).logsumexp(1)
        own = torch.where(target == 0, hidden, own)
    return -(own * valid).sum() / valid.sum().clamp(min=1)


def binary_entropy(p: Tensor) -> Tensor:
    """Entropy in nats of Bernoulli(p), elementwise."""
    p = p.clamp(1e-6, 1 - 1e-6)
    return -(p * p.log() + (1 - p) * (1 - p).log())
