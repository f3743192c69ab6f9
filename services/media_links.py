"""Signed, expiring links to pictures: how media reaches the label tool and the pages."""

from __future__ import annotations

import hashlib
import hmac
import time

from services.settings import Settings
from services.signing import signing_key

TASK_LINK_S = 90 * 86_400
"""How long a link in a task of the label tool holds."""


class BadLink(ValueError):
    """The link was not made here, or has expired."""


class MediaLinks:
    """Makes links and checks them. Whoever has a link can see its picture until it expires, and no other."""

    def __init__(self, settings: Settings) -> None:
        self._key = signing_key(settings)
        self._base = settings.api_url

    def url(self, sha256: str, lasts_s: float = TASK_LINK_S) -> str:
        """A whole URL of the picture with this hash."""
        return self._base + self.path(sha256, lasts_s)

    def path(self, sha256: str, lasts_s: float = 3600) -> str:
        """The same, relative to the API. Expiry is rounded up to the hour, so that browsers can cache."""
        expires = (int(time.time() + lasts_s) // 3600 + 1) * 3600
        return f"/media/{self._sign(sha256, expires)}/{expires}/{sha256}"

    def check(self, signature: str, expires: int, sha256: str) -> float:
        """Seconds that the link still holds. Raises BadLink."""
        if not hmac.compare_digest(signature.encode(), self._sign(sha256, expires).encode()):
            raise BadLink("this link was not made here")
        left = expires - time.time()
        if left <= 0:
            raise BadLink("this link has expired")
        return left

    def _sign(self, sha256: str, expires: int) -> str:
        return hmac.new(self._key, f"media/{expires}/{sha256}".encode(), hashlib.sha256).hexdigest()
