"""Pages by keyset: `after` is the last id of the page before, so that a page holds whatever is added meanwhile."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, Field

Item = TypeVar("Item")

Limit = Annotated[int, Query(ge=1, le=500, description="Items a page.")]
Cursor = Annotated[uuid.UUID | None, Query(description="`next` of the page before.")]


class PageOut(BaseModel, Generic[Item]):
    """Some items, and where the next page begins."""

    items: list[Item]
    next: uuid.UUID | None = Field(description="Give it as `after` for the next page; null on the last one.")


def page_out(rows: Sequence[dict[str, Any]], limit: int) -> dict[str, Any]:
    """A page from up to `limit` + 1 rows that have an `id`: the one too many tells that there is more."""
    items = list(rows[:limit])
    return {"items": items, "next": items[-1]["id"] if len(rows) > limit else None}
