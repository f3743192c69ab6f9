"""Everything on one machine, with the real servers."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from sqlalchemy import Connection, NullPool, create_engine, text

from services.local.folders import runtime_folder
from services.local.stack import start_local
from services.local.state import AlreadyRunning, local_secrets, read_state
from services.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
SERVERS = ("postgres", "redis")


@pytest.fixture
def settings(session_folder: Path) -> Iterator[Settings]:
    """Settings on a data folder that PostgreSQL's user can get to, as pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="stack-", dir=session_folder))
    folder.chmod(0o711)
    settings = Settings(data_dir=folder / "data", api_port=0, label_studio_port=0)
    yield settings
    if settings.data_dir.exists():
        shutil.rmtree(runtime_folder(settings.data_dir))
    shutil.rmtree(folder)


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        yield connection


def test_the_servers_come_up_migrated_and_keep_their_rows_over_a_restart(settings: Settings) -> None:
    with start_local(settings, SERVERS) as stack:
        url = stack.settings.database_url
        with connected(url) as connection:
            assert connection.scalar(text("SELECT count(*) FROM jobs")) == 0
            connection.execute(text("CREATE TABLE kept AS SELECT 7 AS n"))
        with redis.Redis(unix_socket_path=stack.settings.redis_url.split("//")[1].split("?")[0]) as client:
            assert client.ping()
        state = read_state(settings.data_dir)
        assert state == stack.state
        assert {name: role["state"] for name, role in state.roles.items()} == dict.fromkeys(SERVERS, "ready")
    assert read_state(settings.data_dir) is None
    with start_local(settings, ["postgres"]) as stack:
        assert stack.settings.database_url == url
        with connected(url) as connection:
            assert connection.scalar(text("SELECT n FROM kept")) == 7


def test_a_second_one_on_the_same_folder_keeps_out(settings: Settings) -> None:
    with start_local(settings, ["redis"]) as stack:
        with (
            pytest.raises(AlreadyRunning, match=f"already running.*process {os.getpid()}") as refusal,
            start_local(settings),
        ):
            pytest.fail("two supervisors on one data folder")
        assert refusal.value.state == stack.state


def test_secrets_are_made_once_and_are_private(settings: Settings) -> None:
    with start_local(settings, ["redis"]) as stack:
        first = stack.settings.signing_secret
    assert len(first.get_secret_value()) > 30
    with start_local(settings, ["redis"]) as stack:
        assert stack.settings.signing_secret == first
    assert local_secrets(settings.data_dir)["signing_secret"] == first.get_secret_value()
    for name in ("secrets.json", "up.lock"):
        assert (settings.data_dir / name).stat().st_mode & 0o077 == 0


def test_an_operators_database_is_migrated_and_used_as_it_is(settings: Settings, empty_database_url: str) -> None:
    with start_local(settings.with_values(database_url=empty_database_url), SERVERS) as stack:
        assert stack.settings.database_url == empty_database_url
        with connected(empty_database_url) as connection:
            assert connection.scalar(text("SELECT count(*) FROM jobs")) == 0
        assert list(stack.state.roles) == ["redis"]


def test_a_taken_port_is_told_with_the_setting_to_change(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(RuntimeError, match=f"port {port} .*LONGTAIL_API_PORT"),
            start_local(settings.with_values(api_port=port), ["api"]),
        ):
            pytest.fail("it started on a port that is taken")
    assert read_state(settings.data_dir) is None


def test_an_unknown_role_is_refused(settings: Settings) -> None:
    with (
        pytest.raises(ValueError, match="no such roles: kitchen; there are postgres"),
        start_local(settings, ["kitchen"]),
    ):
        pytest.fail("it started")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_server_outlives_it_however_it_ends(settings: Settings, number: signal.Signals) -> None:
    code = (
        "import sys; from services.local.stack import run_until_stopped; from services.settings import Settings;"
        "run_until_stopped(Settings(), ['postgres', 'redis'], on_ready=lambda stack: print('ready', flush=True))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, env=settings.child_environment()
    ) as process:
        assert process.stdout.readline() == "ready\n"
        pids = [role["pid"] for role in read_state(settings.data_dir).roles.values()]
        process.send_signal(number)
    assert process.returncode == (-number if number == signal.SIGKILL else 0)
    deadline = time.monotonic() + 15
    while any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids):
        assert time.monotonic() < deadline, "a server is still there"
        time.sleep(0.05)
    assert read_state(settings.data_dir) is None
