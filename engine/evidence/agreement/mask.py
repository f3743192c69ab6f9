"""Masks: intersection over union, mean over the classes that either person drew; what either ignores doesn't count."""

from __future__ import annotations

import numpy as np

from engine.domain.answers import IGNORE, Answer
from engine.domain.ontology import Head
from engine.evidence.subject_statistics.mask import mask_cells, nearest


def agreement(head: Head, first: Answer, second: Answer) -> float:
    """In [0, 1]; 1 where neither drew anything. A mask of another size is read at the nearest pixel."""
    left = mask_cells(first)
    right = nearest(mask_cells(second), left.shape)
    valid = (left != IGNORE) & (right != IGNORE)
    overlaps = []
    for index in range(1, len(head.classes) + 1):
        one, other = (left == index) & valid, (right == index) & valid
        union = int((one | other).sum())
        if union:
            overlaps.append(int((one & other).sum()) / union)
    return float(np.mean(overlaps)) if overlaps else 1.0
