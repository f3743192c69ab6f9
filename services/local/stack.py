"""Everything on one machine: `longtail up` for a terminal, `start_local` for code."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from engine.store.migrate import upgrade
from services.local.admin import ensure_administrator
from services.local.folders import make_private, postgres_folder, runtime_folder
from services.local.label_studio import DATABASE as LABEL_STUDIO_DATABASE
from services.local.label_studio import LabelStudioServer
from services.local.ports import chosen_port
from services.local.postgres import PostgresServer, postgres_binaries
from services.local.redis import RedisServer
from services.local.refusals import CannotStart
from services.local.roles import (
    ALL_ROLES,
    LABEL_STUDIO,
    OWN_COMMANDS,
    POSTGRES,
    REDIS,
    label_studio_role,
    own_role,
    postgres_role,
    redis_role,
)
from services.local.state import DataDirLock, LocalState, local_secrets, remove_state, write_state
from services.local.supervisor import Event, Role, Supervisor
from services.local.unprivileged import unprivileged_account
from services.settings import Settings, system_environment

DATABASE = "longtail"


@dataclass(frozen=True)
class LocalStack:
    """A running set of services, and the settings with which to reach them."""

    settings: Settings
    state: LocalState
    supervisor: Supervisor

    def wait_for(self, role: str) -> None:
        """Returns when this role is ready; at once where it is the operator's own. Raises StartFailed."""
        if role in self.state.roles:
            self.supervisor.wait_for(role)


@contextmanager
def start_local(
    settings: Settings,
    roles: Collection[str] = ALL_ROLES,
    on_event: Callable[[Event], None] = lambda event: None,
    later: Collection[str] = (),
) -> Iterator[LocalStack]:
    """Run these roles for the length of the `with` block; those named in `later` are started and not waited for.

    A PostgreSQL, Redis or Label Studio whose URL the settings name is the operator's, and is used in place of one of
    ours. Raises AlreadyRunning, StartFailed, or CannotStart with what to do about it.
    """
    unknown = set(roles) - set(ALL_ROLES)
    if unknown:
        raise ValueError(f"no such roles: {', '.join(sorted(unknown))}; there are {', '.join(ALL_ROLES)}")
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    # PostgreSQL's user passes through to its own folder, and can read nothing else on the way.
    settings.data_dir.chmod(0o711 if unprivileged_account().switched else 0o700)
    lock = DataDirLock(settings.data_dir)
    try:
        settings, waves, state = _plan(settings, roles)
        waves = [[replace(role, awaited=role.name not in later) for role in wave] for wave in waves]

        def on_change(states: dict[str, dict[str, Any]]) -> None:
            state.roles.clear()
            state.roles.update(states)
            write_state(settings.data_dir, state)

        supervisor = Supervisor(waves, settings.data_dir / "logs", on_event, on_change)
        try:
            supervisor.start()
            yield LocalStack(settings, state, supervisor)
        finally:
            supervisor.stop()
            remove_state(settings.data_dir)
    finally:
        lock.release()


def run_until_stopped(
    settings: Settings,
    roles: Collection[str] = ALL_ROLES,
    on_event: Callable[[Event], None] = lambda event: None,
    on_ready: Callable[[LocalStack], None] = lambda stack: None,
) -> None:
    """Run these roles until SIGINT or SIGTERM. Call it in the main thread. Raises what `start_local` does."""
    stop = threading.Event()

    def on_signal(number: int, frame: object) -> None:
        if stop.is_set():
            return
        stop.set()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with start_local(settings, roles, on_event) as stack:
            on_ready(stack)
            while not stop.wait(0.5):
                stack.supervisor.check()
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _plan(settings: Settings, roles: Collection[str]) -> tuple[Settings, list[list[Role]], LocalState]:
    """The settings with every URL filled in, and the roles in the order in which they are started."""
    data_dir = settings.data_dir
    secrets = local_secrets(data_dir)
    runtime = runtime_folder(data_dir)
    account = unprivileged_account()
    make_private(data_dir / "logs")
    make_private(data_dir / "blobs")
    postgres = PostgresServer(postgres_folder(data_dir, account), runtime / "p", account)
    redis = RedisServer(runtime / "r")
    found: dict[str, Any] = {"signing_secret": settings.signing_secret or secrets["signing_secret"]}
    servers: list[Role] = []

    if settings.database_url is None:
        found["database_url"] = postgres.url(DATABASE)
        if POSTGRES in roles:
            postgres.initialise(postgres_binaries(account), system_environment())
            servers.append(postgres_role(postgres, lambda: _make_databases(postgres, secrets["admin_token"])))
    else:
        upgrade(settings.database_url)
        ensure_administrator(settings.database_url, secrets["admin_token"])
    if settings.redis_url is None:
        found["redis_url"] = redis.url()
        if REDIS in roles:
            make_private(redis.sockets)
            servers.append(redis_role(redis))

    label_studio = None
    if settings.label_studio_url is None and LABEL_STUDIO in roles:
        if settings.database_url is not None:
            raise CannotStart(
                "Label Studio can't be started here on a database of yours: run it yourself and set "
                "LONGTAIL_LABEL_STUDIO_URL and LONGTAIL_LABEL_STUDIO_TOKEN, or unset LONGTAIL_DATABASE_URL"
            )
        label_studio = LabelStudioServer(
            host=settings.label_studio_host,
            port=chosen_port(settings.label_studio_host, settings.label_studio_port, "LONGTAIL_LABEL_STUDIO_PORT"),
            folder=make_private(data_dir / "label-studio"),
            email=settings.label_studio_email,
            password=secrets["label_studio_password"],
            token=secrets["label_studio_token"],
        )
        found.update(label_studio_url=label_studio.url, label_studio_token=label_studio.token)
    if roles_of_ours := [name for name in OWN_COMMANDS if name in roles]:
        found["api_port"] = chosen_port(settings.api_host, settings.api_port, "LONGTAIL_API_PORT")

    complete = settings.with_values(**found)
    applications = [own_role(name, complete) for name in roles_of_ours]
    if label_studio is not None:
        applications.insert(0, label_studio_role(label_studio, complete, postgres))
    return complete, [servers, applications], _state(complete, label_studio, secrets["admin_token"])


def _make_databases(postgres: PostgresServer, admin_token: str) -> None:
    postgres.ensure_database(DATABASE, ("vector",))
    postgres.ensure_database(LABEL_STUDIO_DATABASE, ("pg_trgm",))
    upgrade(postgres.url(DATABASE))
    ensure_administrator(postgres.url(DATABASE), admin_token)


def _state(settings: Settings, label_studio: LabelStudioServer | None, admin_token: str) -> LocalState:
    token = settings.label_studio_token
    return LocalState(
        pid=os.getpid(),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        api_url=settings.api_url,
        database_url=settings.database_url or "",
        redis_url=settings.redis_url or "",
        label_studio_url=settings.label_studio_url or "",
        label_studio_token=token.get_secret_value() if token else "",
        label_studio_email=label_studio.email if label_studio else None,
        label_studio_password=label_studio.password if label_studio else None,
        admin_token=admin_token,
        logs=str(settings.data_dir / "logs"),
    )
