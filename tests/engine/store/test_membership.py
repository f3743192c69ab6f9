"""Sets of ids of any size fit into a query."""

from __future__ import annotations

import uuid

from loop_fixtures import Loop
from sqlalchemy import select

from engine.store.membership import among
from engine.store.tables.recordings import Clip


def test_more_ids_than_a_statement_has_parameters(loop: Loop) -> None:
    here = [loop.add_clip(1), loop.add_clip(2)]
    many = [uuid.uuid4() for _ in range(70_000)]
    with loop.database.read() as session:
        assert sorted(session.scalars(select(Clip.id).where(Clip.id == among([*many, *here])))) == sorted(here)
        assert session.scalars(select(Clip.id).where(Clip.id == among([]))).all() == []
