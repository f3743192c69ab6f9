"""Ids: sortable for rows that happen, derived for rows that are determined by what they name."""

from __future__ import annotations

import uuid

_FRAMES = uuid.UUID("6f1d5f0e-3c0a-5a5e-9a54-6c6f6e677461")


def frame_id(clip_id: uuid.UUID, stream: str, pts: int) -> uuid.UUID:
    """The id of the frame at `pts` of a clip's stream: the same wherever and however often it is sampled."""
    return uuid.uuid5(_FRAMES, f"{clip_id}/{stream}/{pts}")
