"""The migrations and the tables in code say the same."""

import pytest
from alembic import command
from sqlalchemy import Engine, create_engine, text

from engine.store.migrate import config, upgrade


def count_tables(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(text("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"))


def test_tables_in_code_are_those_of_the_migrations(database_url: str) -> None:
    command.check(config(database_url))


def test_a_difference_would_be_found(database_engine: Engine, database_url: str) -> None:
    with database_engine.begin() as connection:
        connection.execute(text("ALTER TABLE clips ADD COLUMN stray integer"))
    with pytest.raises(Exception, match="stray"):
        command.check(config(database_url))


def test_migrating_again_changes_nothing(database_engine: Engine, database_url: str) -> None:
    before = count_tables(database_engine)
    upgrade(database_url)
    assert count_tables(database_engine) == before > 20


def test_an_empty_database_gets_every_table(empty_database_url: str, database_engine: Engine) -> None:
    upgrade(empty_database_url)
    engine = create_engine(empty_database_url)
    assert count_tables(engine) == count_tables(database_engine)
    engine.dispose()


@pytest.mark.parametrize("number", [1, 2])
def test_each_test_gets_an_empty_migrated_database(database_engine: Engine, number: int) -> None:
    with database_engine.begin() as connection:
        other = connection.scalar(text(f"SELECT to_regclass('made_by_test_{3 - number}')"))
        connection.execute(text(f"CREATE TABLE made_by_test_{number} ()"))
    assert other is None
