"""Is a row one of these? For sets of any size: a list of single parameters would end at 65,535."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from sqlalchemy import CollectionAggregate, Uuid, any_, literal
from sqlalchemy.dialects.postgresql import ARRAY


def among(ids: Iterable[uuid.UUID]) -> CollectionAggregate[Any]:
    """The right side of ``Table.id == among(ids)``, which sends the ids as one array."""
    return any_(literal(list(ids), ARRAY(Uuid())))
