"""Who is behind a session of the pages."""

from __future__ import annotations

import uuid

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from engine.domain.access import Principal
from engine.store.tables.access import Token


def principal_of_token(session: Session, token_id: uuid.UUID) -> Principal | None:
    """The holder of the token with this id, unless it was revoked or has expired meanwhile."""
    token = session.execute(
        select(Token).where(
            Token.id == token_id,
            Token.revoked_at.is_(None),
            or_(Token.expires_at.is_(None), Token.expires_at > func.now()),
        )
    ).scalar_one_or_none()
    if token is None:
        return None
    return Principal("token", token.id, token.name, token.project_id, frozenset(token.scopes))
