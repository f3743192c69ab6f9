"""The administrator of one machine: a token that is made with its data folder, so that its owner can sign in."""

from __future__ import annotations

from sqlalchemy.dialects.postgresql import insert

from engine.domain.access import ADMIN, secret_sha256
from engine.store.database import connect
from engine.store.projects import ensure_default
from engine.store.tables.access import Token
from engine.store.tables.metadata import new_id
from engine.store.unit_of_work import Database
from services.wiring import Undispatched

NAME = "local administrator"


def ensure_administrator(database_url: str, secret: str) -> None:
    """Let this secret open everything in the default project. The same again changes nothing."""
    engine = connect(database_url, pool_size=1)
    try:
        with Database(engine, Undispatched()).unit() as unit:
            project = ensure_default(unit.session)
            sha256 = secret_sha256(secret)
            unit.session.execute(
                insert(Token)
                .values(id=new_id(), project_id=project.id, name=NAME, secret_sha256=sha256, scopes=[ADMIN])
                .on_conflict_do_update(
                    index_elements=["project_id", "name"], set_={"secret_sha256": sha256, "revoked_at": None}
                )
            )
            unit.commit()
    finally:
        engine.dispose()
