"""What an erasure may not leave: every name of a vehicle's, looked for in all tables, blobs and copies."""

from __future__ import annotations

import sys
import time
import uuid
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from loop_fixtures import Loop
from sqlalchemy import create_engine, select, text

from engine.adapters.local_copies import DataFolderCopies
from engine.domain.erasure import Target
from engine.jobs import ledger
from engine.jobs.perform import WorkPostponed
from engine.ports import LabelBridge
from engine.stages.erase import erase
from engine.stages.erasure_request import request_erasure
from engine.store.tables.privacy import Erasure
from engine.store.tables.work import Job
from engine.store.unit_of_work import Database
from services.local.child import Child
from services.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
ERASE_WORKER = Path(__file__).with_name("erase_worker.py")

# All that hangs on a vehicle, as (what to look for, where it comes from); :v is the vehicle's id.
NAMES_SQL = """
WITH d AS (SELECT * FROM drives WHERE vehicle_id = :v), c AS (SELECT * FROM clips WHERE vehicle_id = :v),
     s AS (SELECT * FROM subjects WHERE clip_id IN (SELECT id FROM c)),
     t AS (SELECT * FROM label_tasks WHERE subject_id IN (SELECT id FROM s)),
     l AS (SELECT * FROM labels WHERE subject_id IN (SELECT id FROM s)),
     f AS (SELECT * FROM frames WHERE clip_id IN (SELECT id FROM c)),
     b AS (SELECT blob_id AS id FROM streams WHERE clip_id IN (SELECT id FROM c)
           UNION SELECT predictions_blob_id FROM scorings WHERE clip_id IN (SELECT id FROM c)
           UNION SELECT picture_blob_id FROM f UNION SELECT array_blob_id FROM l
           UNION SELECT blob_id FROM shown_pictures WHERE frame_id IN (SELECT id FROM f))
SELECT external_id FROM vehicles WHERE id = :v UNION SELECT :v ::text
UNION SELECT id::text FROM d UNION SELECT external_id FROM d
UNION SELECT split_group_id::text FROM d UNION SELECT name FROM split_groups WHERE id IN (SELECT split_group_id FROM d)
UNION SELECT id::text FROM c UNION SELECT external_id FROM c UNION SELECT manifest_sha256 FROM c
UNION SELECT id::text FROM streams WHERE clip_id IN (SELECT id FROM c)
UNION SELECT id::text FROM s UNION SELECT id::text FROM f
UNION SELECT id::text FROM scorings WHERE clip_id IN (SELECT id FROM c)
UNION SELECT id::text FROM queue_items WHERE subject_id IN (SELECT id FROM s)
UNION SELECT id::text FROM t UNION SELECT id::text FROM annotations WHERE task_id IN (SELECT id FROM t)
UNION SELECT id::text FROM l
UNION SELECT id::text FROM b WHERE id IS NOT NULL
UNION SELECT sha256 FROM blobs WHERE id IN (SELECT id FROM b)
"""


@dataclass
class Traces:
    """The names of a vehicle's things, and where they are still to be found."""

    names: set[str]
    data_dir: Path

    def in_tables(self, url: str) -> list[str]:
        """Rows of any table that name one of them: tombstones may have ids, erasures may say anything."""
        engine = create_engine(url)
        found = []
        with engine.connect() as connection:
            tables = connection.execute(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")).scalars()
            for table in sorted(tables):
                if table in ("tombstones", "erasures"):
                    continue
                for (row,) in connection.execute(text(f'SELECT to_jsonb(t)::text FROM "{table}" t')):
                    found += [f"{table}: {name} in {row[:300]}" for name in self._named(row)]
        engine.dispose()
        return found

    def in_files(self) -> list[str]:
        """Files of the blob store and of the data folder whose name or content names one of them, unpacked."""
        found = []
        for path in (path for folder in ("blobs", "cache", "runs") for path in (self.data_dir / folder).rglob("*")):
            if not path.is_file():
                continue
            shown = path.as_posix() + " " + path.stem.partition("-")[0]
            hexed = {name.replace("-", "") for name in self.names if _is_uuid(name)}
            found += [f"{path} is called {name}" for name in self.names | hexed if name in shown]
            found += [f"{path} says {name}" for name in self._named(_unpacked(path.read_bytes()))]
        return found

    def _named(self, said: str) -> list[str]:
        return [name for name in self.names if name in said]


def _is_uuid(name: str) -> bool:
    try:
        uuid.UUID(name)
    except ValueError:
        return False
    return True


def _unpacked(data: bytes) -> str:
    """A blob's words, whatever it is packed with."""
    if data.startswith(b"PAR1"):
        table = pq.read_table(pa.BufferReader(data))
        return f"{table.schema.metadata} {table.to_pylist()}"
    if data.startswith(b"\xff\xff\xff\xff"):
        return str(pa.ipc.open_stream(pa.BufferReader(data)).read_all().drop(["array"]).to_pylist())
    if data.startswith(b"x\x9c"):
        return zlib.decompress(data).decode()
    return data.decode("latin-1") if len(data) < 2_000_000 else ""


class Untouched:
    """A label tool that nothing may be asked of: there is no task to look for."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the label tool was asked for {name}")


@dataclass
class Eraser:
    """Erases, by hand or in processes that die."""

    loop: Loop
    settings: Settings

    @property
    def copies(self) -> DataFolderCopies:
        return DataFolderCopies(self.settings.data_dir)

    @property
    def database(self) -> Database:
        return self.loop.database

    def traces(self, vehicle: str) -> Traces:
        with self.database.read() as session:
            identity = session.execute(text("SELECT id FROM vehicles WHERE external_id = :e"), {"e": vehicle}).scalar()
            names = set(session.execute(text(NAMES_SQL), {"v": str(identity)}).scalars()) - {None}
        assert len(names) > 10
        return Traces(names, self.settings.data_dir)

    def ask(self, **target: Any) -> uuid.UUID:
        with self.database.unit() as unit:
            erasure, _ = request_erasure(unit, self.loop.project_id, Target(**target), "asked to", "tester")
            unit.commit()
        return erasure.id

    def work(self, bridge: LabelBridge | None = None, settled_s: float = 0.0) -> str:
        """Do the next erase job."""
        lease = self.loop.claim("erase")
        tool: Any = bridge or Untouched()
        try:
            return erase(self.database, self.loop.blobs, tool, self.copies, lease, settled_s)
        except WorkPostponed as postponed:
            ledger.postpone(self.database, lease, str(postponed), 0)
            return str(postponed)

    def erase(self, bridge: LabelBridge | None = None, **target: Any) -> Erasure:
        """Ask for it and do it."""
        erasure = self.ask(**target)
        assert self.work(bridge) in ("done", "refused")
        return self.erasure(erasure)

    def erasure(self, erasure_id: uuid.UUID) -> Erasure:
        with self.database.read() as session:
            return session.get_one(Erasure, erasure_id)

    def removed(self, erasure_id: uuid.UUID) -> dict[str, int]:
        """The receipt's counts."""
        receipt = self.erasure(erasure_id).receipt
        assert receipt is not None
        return dict(receipt["removed"])

    def die_at(self, point: str) -> None:
        """Another process takes the erase job and is killed at this point; its lease is taken back."""
        log = self.settings.data_dir / "logs" / f"{point}.log"
        settings = self.settings.with_values(failpoints=f"{point}=kill")
        environment = {**settings.child_environment(), "PYTHONPATH": str(ROOT)}
        child = Child([sys.executable, str(ERASE_WORKER)], environment, log)
        start = time.monotonic()
        while child.exit_code is None and time.monotonic() - start < 60:
            time.sleep(0.05)
        assert child.exit_code == -9, child.last_lines(30)
        with self.database.unit() as unit:
            taken_back = "UPDATE jobs SET state = 'due', run_after = now(), lease_owner = NULL, lease_until = NULL, "
            taken_back += "lease_token = NULL WHERE kind = 'erase' AND state = 'leased'"
            unit.session.execute(text(taken_back))
            unit.commit()

    def job(self) -> Job:
        with self.database.read() as session:
            return session.scalars(select(Job).where(Job.kind == "erase").order_by(Job.id.desc()).limit(1)).one()


@pytest.fixture
def eraser(loop: Loop, database_url: str, data_dir: Path) -> Eraser:
    return Eraser(loop, Settings(data_dir=data_dir, database_url=database_url))
