"""How a command reaches the services: by the settings, else by what runs on the data folder of this machine."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from services.settings import Settings
    from services.wiring import Wiring


class NotReachable(RuntimeError):
    """Nothing runs where the command looked; the message says what to do."""


def running_settings() -> Settings:
    """Settings with every URL filled in. Raises NotReachable when nothing is set and nothing runs here."""
    from services.local.state import read_state
    from services.settings import Settings

    settings = Settings()
    if settings.database_url is not None:
        return settings
    state = read_state(settings.data_dir)
    if state is None or not state.database_url:
        raise NotReachable(
            f"nothing runs on {settings.data_dir}: start it with `longtail up`, "
            "or set LONGTAIL_DATABASE_URL to the database of a Longtail elsewhere"
        )
    return settings.with_values(
        database_url=state.database_url,
        redis_url=state.redis_url or None,
        label_studio_url=state.label_studio_url or None,
        label_studio_token=state.label_studio_token or None,
        public_url=state.api_url,
    )


@contextmanager
def reached() -> Iterator[Wiring]:
    """The running services' wiring: database, blobs, and the dispatcher that tells workers of what becomes due."""
    from services.wiring import opened

    with opened(running_settings()) as wiring:
        yield wiring


def project_id(session: Session) -> uuid.UUID:
    """The project that commands work in. Raises NotReachable when there is none yet."""
    from sqlalchemy import select

    from engine.store.projects import DEFAULT
    from engine.store.tables.access import Project

    found = session.scalar(select(Project.id).where(Project.name == DEFAULT))
    if found is None:
        raise NotReachable(
            "there is nothing here yet: make a device with `longtail devices add`, or run `longtail demo`"
        )
    return found


def ensured_project_id(session: Session) -> uuid.UUID:
    """The same, made where there is none, in the caller's transaction."""
    from engine.store.projects import ensure_default

    return ensure_default(session).id


def api_access() -> tuple[str, str | None]:
    """The API's URL and the token to use there: the settings' own, else those of what runs on this machine."""
    from services.local.state import read_state
    from services.settings import Settings

    settings = Settings()
    state = read_state(settings.data_dir)
    if settings.api_token is not None:
        return settings.api_url, settings.api_token.get_secret_value()
    if state is None:
        raise NotReachable(
            f"nothing runs on {settings.data_dir}: start it with `longtail up`, "
            "or set LONGTAIL_PUBLIC_URL and LONGTAIL_API_TOKEN to reach a Longtail elsewhere"
        )
    return state.api_url, state.admin_token
