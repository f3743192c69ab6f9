"""The one database, PostgreSQL: an engine with the settings that every role shares."""

from __future__ import annotations

from sqlalchemy import Engine, create_engine


def connect(url: str, pool_size: int = 5) -> Engine:
    """An engine on `url` (``postgresql+psycopg://…``); a transaction left idle is ended, so that it holds no locks."""
    if not url.startswith("postgresql+psycopg:"):
        raise ValueError(f"the database must be PostgreSQL, as postgresql+psycopg://…, not {url.split(':')[0]}://…")
    return create_engine(
        url,
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": 5,
            "options": "-c timezone=UTC -c lock_timeout=10000 -c idle_in_transaction_session_timeout=60000",
        },
    )
