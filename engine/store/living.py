"""Clips and subjects that are not erased, held so that none is erased before the transaction ends.

Whoever records something about a clip asks here first, in the transaction that records: an erasure waits for it, and
what comes after the erasure finds the clip erased and records nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from engine.store.membership import among
from engine.store.tables.recordings import Clip, Subject


def hold_clips(session: Session, clip_ids: Iterable[uuid.UUID]) -> set[uuid.UUID]:
    """Those of these clips that are there and not erased."""
    # FOR KEY SHARE waits for an erasure's FOR UPDATE, and for nobody who only changes a clip's state.
    query = (
        select(Clip.id)
        .where(Clip.id == among(clip_ids), Clip.state != "erased")
        .order_by(Clip.id)
        .with_for_update(read=True, key_share=True)
    )
    return set(session.scalars(query))


def hold_subjects(session: Session, subject_ids: Iterable[uuid.UUID]) -> set[uuid.UUID]:
    """Those of these subjects whose clips are there and not erased."""
    query = (
        select(Subject.id)
        .join(Clip, Clip.id == Subject.clip_id)
        .where(Subject.id == among(subject_ids), Clip.state != "erased")
        .order_by(Clip.id)
        .with_for_update(read=True, key_share=True, of=Clip)
    )
    return set(session.scalars(query))


def is_erased(session: Session, clip_id: uuid.UUID) -> bool:
    """Whether the clip was erased, or is about to be."""
    return not session.scalar(select(exists().where(Clip.id == clip_id, Clip.state != "erased")))
