"""Our PostgreSQL is private to us, durable where it should be, and starts again from what a crash has left."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from services.local.child import Child
from services.local.postgres import PostgresServer, postgres_binaries
from services.local.unprivileged import Account, unprivileged_account
from services.settings import system_environment


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_runs_unprivileged_in_folders_of_its_own(postgres_server: PostgresServer) -> None:
    assert postgres_server.data.stat().st_uid == postgres_server.account.uid != 0
    assert mode(postgres_server.data) == 0o700
    assert mode(postgres_server.sockets) == 0o700
    pid = int((postgres_server.data / "postmaster.pid").read_text().splitlines()[0])
    uids = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Uid:"))
    assert uids.split()[1:] == [str(postgres_server.account.uid)] * 4


def test_it_listens_on_no_network_and_trusts_nobody_by_name(postgres_server: PostgresServer) -> None:
    with postgres_server.connect() as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
        rules = connection.execute("SELECT type, auth_method FROM pg_hba_file_rules").fetchall()
    assert rules == [("local", "peer")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user, to be refused as them")
def test_another_user_of_the_machine_cannot_reach_it(postgres_server: PostgresServer) -> None:
    listed = ["ls", str(postgres_server.sockets)]
    assert subprocess.run(listed, capture_output=True).returncode == 0
    stranger = subprocess.run(listed, user=54321, group=54321, extra_groups=[], capture_output=True, text=True, cwd="/")
    assert stranger.returncode != 0
    assert "Permission denied" in stranger.stderr


def test_a_database_has_vectors_and_builtin_utf8(database_engine: Engine) -> None:
    with database_engine.connect() as connection:
        assert connection.scalar(text("SELECT '[1,2]'::vector <-> '[1,0]'")) == 2.0
        encoding = "SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()"
        assert connection.scalar(text(encoding)) == "UTF8"


def test_what_was_committed_outlives_a_kill(session_folder: Path) -> None:
    account = unprivileged_account()
    binaries = postgres_binaries(account)
    server = PostgresServer(session_folder / "killed", session_folder / "ks", account)
    for attempt in (1, 2):
        server.initialise(binaries, system_environment())
        log = session_folder / "killed.log"
        child = Child(server.command(binaries), system_environment(), log, account=account, stop_signal=signal.SIGINT)
        try:
            server.wait_ready()
            with server.connect() as connection:
                assert connection.execute("SHOW fsync").fetchone() == ("on",)
                assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
                if attempt == 1:
                    connection.execute("CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
                    os.kill(child.pid, signal.SIGKILL)
                else:
                    assert connection.execute("SELECT n FROM kept").fetchall() == [(7,)]
        finally:
            child.stop()


def test_a_database_is_made_once(postgres_server: PostgresServer) -> None:
    for _ in range(2):
        postgres_server.ensure_database("made_once", ("vector", "pg_trgm"))
    engine = create_engine(postgres_server.url("made_once"))
    with engine.connect() as connection:
        found = connection.scalars(text("SELECT extname FROM pg_extension ORDER BY 1")).all()
    engine.dispose()
    assert found == ["pg_trgm", "plpgsql", "vector"]


def test_a_private_folder_on_the_way_is_seen(tmp_path: Path) -> None:
    open_folder, closed = tmp_path / "open", tmp_path / "closed"
    open_folder.mkdir(mode=0o755)
    closed.mkdir(mode=0o700)
    stranger = Account("stranger", 54321, 54321, switched=True)
    owner = Account("owner", os.geteuid(), os.getegid(), switched=True)
    assert owner.can_enter(closed / "postgres")
    assert not stranger.can_enter(closed / "postgres")
    assert Account("stranger", 54321, 54321, switched=True).can_enter(Path("/usr/bin/env"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")
@pytest.mark.slow
def test_binaries_that_its_user_cannot_reach_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session_folder: Path
) -> None:
    monkeypatch.setattr("services.local.postgres.COPIES", session_folder / "copies")
    account = unprivileged_account()
    nowhere = Account(account.name, account.uid, account.gid, switched=True)
    monkeypatch.setattr(Account, "can_enter", lambda self, folder: False)
    binaries = postgres_binaries(nowhere)
    assert binaries.is_relative_to(session_folder / "copies")
    server = PostgresServer(session_folder / "copied", session_folder / "cs", account)
    server.initialise(binaries, system_environment())
    child = Child(server.command(binaries), system_environment(), session_folder / "copied.log", account=account)
    try:
        server.wait_ready()
        server.ensure_database("longtail", ("vector",))
    finally:
        child.stop()
