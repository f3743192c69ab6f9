"""Whoever has a database has all of its tables mapped, whatever else the process imports."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import engine.store.unit_of_work
from engine.store.tables.metadata import Table
missing = [fk.target_fullname for t in Table.metadata.tables.values() for fk in t.foreign_keys
           if fk.target_fullname.split(".")[0] not in Table.metadata.tables]
sys.exit(f"unmapped: {missing}" if missing or not Table.metadata.tables else 0)
"""


def test_a_database_alone_maps_every_table_that_a_foreign_key_names() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
