"""All tables, imported once so that the metadata is whole wherever it is needed whole."""

from engine.store.tables import access, labels, models, privacy, recordings, work
from engine.store.tables.metadata import Table

METADATA = Table.metadata

__all__ = ["METADATA", "access", "labels", "models", "privacy", "recordings", "work"]
