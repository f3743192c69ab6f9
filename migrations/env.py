"""Runs migrations against the URL given in the Alembic config, else the service's own setting."""

from alembic import context
from sqlalchemy import create_engine, pool

from engine.store.tables.everything import METADATA
from services.settings import Settings


def run() -> None:
    url = context.config.get_main_option("sqlalchemy.url") or Settings().database_url
    engine = create_engine(url, poolclass=pool.NullPool)
    with engine.connect() as connection:
        context.configure(connection=connection, target_metadata=METADATA, compare_type=True)
        with context.begin_transaction():
            # Two processes that start at once: the second waits and finds nothing to do.
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7205759403792793)")
            context.run_migrations()
    engine.dispose()


if context.is_offline_mode():
    raise SystemExit("migrations run against a database: give its URL (LONGTAIL_DATABASE_URL)")
run()
