"""Brings a database to the newest revision."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config

ROOT = Path(__file__).resolve().parents[2]


def config(database_url: str) -> Config:
    """Alembic's config for this database."""
    configuration = Config(str(ROOT / "alembic.ini"))
    configuration.set_main_option("script_location", str(ROOT / "migrations"))
    configuration.set_main_option("sqlalchemy.url", database_url.replace("%", "%%"))
    return configuration


def upgrade(database_url: str) -> None:
    """Run every migration that the database has not seen."""
    command.upgrade(config(database_url), "head")
