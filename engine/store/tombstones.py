"""Tombstones: what was erased is known again when it is sent in again, by a hash of what it was called."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from sqlalchemy import exists, func, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from engine.domain.erasure import tombstone_key
from engine.domain.refusals import Gone
from engine.store.tables.metadata import new_id
from engine.store.tables.privacy import Erasure, Tombstone

WORDS = {"vehicle": "this vehicle", "drive": "this drive", "clip": "this clip", "media": "this very recording"}


def add(
    session: Session,
    erasure: Erasure,
    kind: str,
    stones: Sequence[tuple[uuid.UUID | None, Sequence[str]]],
    split: str | None = None,
) -> None:
    """Tombstones of things of this kind, each by its id and names; one that is there already stays."""
    rows = [
        {
            "id": new_id(),
            "project_id": erasure.project_id,
            "erasure_id": erasure.id,
            "object_kind": kind,
            "object_id": object_id,
            "key": tombstone_key(erasure.project_id, kind, *names),
            "split": split,
        }
        for object_id, names in stones
    ]
    if rows:
        statement = insert(Tombstone).on_conflict_do_nothing(index_elements=["project_id", "object_kind", "key"])
        session.execute(statement, rows)


def find(session: Session, project_id: uuid.UUID, kind: str, *names: str) -> Tombstone | None:
    """The tombstone of the thing of this kind and name."""
    return session.execute(
        select(Tombstone).where(
            Tombstone.project_id == project_id,
            Tombstone.object_kind == kind,
            Tombstone.key == tombstone_key(project_id, kind, *names),
        )
    ).scalar_one_or_none()


def of_object(session: Session, project_id: uuid.UUID, kind: str, object_id: uuid.UUID) -> Tombstone | None:
    """The tombstone of the thing that had this id."""
    return session.execute(
        select(Tombstone)
        .where(Tombstone.project_id == project_id, Tombstone.object_kind == kind, Tombstone.object_id == object_id)
        .limit(1)
    ).scalar_one_or_none()


def split_of(session: Session, project_id: uuid.UUID, group: str) -> str | None:
    """The split of a group that was erased with all that was in it: it holds for a new group of that name."""
    stone = find(session, project_id, "split_group", group)
    return stone.split if stone is not None else None


def erased_since(session: Session, project_id: uuid.UUID, kind: str, seconds: float) -> bool:
    """Whether something of this kind was erased in the last so many seconds."""
    limit = func.statement_timestamp() - func.make_interval(0, 0, 0, 0, 0, 0, seconds)
    lately = Tombstone.erased_at > limit
    query = exists().where(Tombstone.project_id == project_id, Tombstone.object_kind == kind, lately)
    return bool(session.scalar(select(query)))


def known(session: Session, project_id: uuid.UUID, kind: str, names: Iterable[str]) -> set[str]:
    """Those of these names that have a tombstone."""
    by_key = {tombstone_key(project_id, kind, name): name for name in names}
    found = session.scalars(
        select(Tombstone.key).where(
            Tombstone.project_id == project_id, Tombstone.object_kind == kind, Tombstone.key.in_(by_key)
        )
    )
    return {by_key[key] for key in found}


def refuse_erased(
    session: Session, project_id: uuid.UUID, vehicle: str, drive: str, clip: str, sha256s: Iterable[str]
) -> None:
    """Raises Gone when this vehicle, this drive of it, this clip of it, or one of these recordings was erased."""
    keys = [
        ("vehicle", tombstone_key(project_id, "vehicle", vehicle)),
        ("drive", tombstone_key(project_id, "drive", vehicle, drive)),
        ("clip", tombstone_key(project_id, "clip", vehicle, clip)),
        *(("media", tombstone_key(project_id, "media", sha256)) for sha256 in sorted(set(sha256s))),
    ]
    found = session.scalars(
        select(Tombstone)
        .where(Tombstone.project_id == project_id, tuple_(Tombstone.object_kind, Tombstone.key).in_(keys))
        .limit(1)
    ).one_or_none()
    if found is not None:
        raise Gone(
            "erased",
            f"{WORDS[found.object_kind]} was erased on {found.erased_at:%Y-%m-%d} (erasure {found.erasure_id})",
            "what was erased is not taken again: don't send it; a vehicle that goes on under other terms gets another "
            "external id",
        )
