"""The secret that links, sessions and the label tool's webhook are signed with."""

from __future__ import annotations

from services.settings import Settings
from services.wiring import NotConfigured


def signing_key(settings: Settings) -> bytes:
    """The key of every signature made here. Raises NotConfigured when there is none."""
    if settings.signing_secret is None:
        raise NotConfigured(
            "no signing secret: set LONGTAIL_SIGNING_SECRET to a long random text, the same in every process"
        )
    return settings.signing_secret.get_secret_value().encode()
