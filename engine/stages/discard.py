"""Discard: bytes that were stored for something that was erased meanwhile, and that nothing will ever point to."""

from __future__ import annotations

from collections.abc import Iterable

from engine.ports import BlobStore
from engine.store.blobs import known
from engine.store.unit_of_work import Database


def discard(database: Database, blobs: BlobStore, sha256s: Iterable[str]) -> int:
    """Remove those of these bytes that no row points to; returns how many.

    Only for what can have been stored for nothing else, like answers that name their subjects: another one who has
    just stored the same bytes would lose them.
    """
    gone = 0
    for sha256 in set(sha256s):
        with database.read() as session:
            wanted = known(session, [sha256])
        if not wanted:
            blobs.remove(sha256)
            gone += 1
    return gone
