"""Whether two answers are the same but for the noise of floating point: has a scorer elsewhere become another one?"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.domain.answers import Answer, decode_runs
from engine.domain.ontology import Kind

NUMBERS = 2e-3
CELLS = 0.005  # of a mask that may be another class


def differs(before: Answer, now: Answer) -> str | None:
    """What is different, in words; None when they are the same."""
    if before.kind is not now.kind:
        return f"the kind, {before.kind} before and {now.kind} now"
    if before.kind is Kind.MASK:
        return _masks(before, now)
    if before.array is not None and now.array is not None:
        first, second = (
            np.load(io.BytesIO(data), allow_pickle=False).astype(float) for data in (before.array, now.array)
        )
        if first.shape != second.shape:
            return f"the size, {first.shape} before and {second.shape} now"
        if not np.allclose(first, second, rtol=0.01, atol=NUMBERS, equal_nan=True):
            return "the values"
    return _documents(before.value, now.value, "the answer")


def _masks(before: Answer, now: Answer) -> str | None:
    if list(before.value["size"]) != list(now.value["size"]):
        return f"the size, {before.value['size']} before and {now.value['size']} now"
    first, second = (
        np.frombuffer(decode_runs(answer.value["runs"], tuple(answer.value["size"])), np.uint8)
        for answer in (before, now)
    )
    changed = float((first != second).mean())
    return f"{changed:.1%} of the cells" if changed > CELLS else None


def _documents(before: Any, now: Any, where: str) -> str | None:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        if before.keys() != now.keys():
            return f"{where}: it has {sorted(now)}, and had {sorted(before)}"
        parts = ((before[key], now[key], f"{where}.{key}") for key in before)
    elif isinstance(before, list) and isinstance(now, list):
        if len(before) != len(now):
            return f"{where}: {len(now)} in place of {len(before)}"
        parts = ((a, b, f"{where}.{place}") for place, (a, b) in enumerate(zip(before, now, strict=True)))
    elif _number(before) and _number(now):
        return None if abs(before - now) <= NUMBERS else f"{where}: {now} in place of {before}"
    else:
        return None if before == now else f"{where}: {now!r} in place of {before!r}"
    return next((found for part in parts if (found := _documents(*part)) is not None), None)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
