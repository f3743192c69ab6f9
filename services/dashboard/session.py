"""Signed sessions of people on the pages: a cookie that names the token they signed in with, and never its secret."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
import uuid
from dataclasses import dataclass
from urllib.parse import urlsplit

from services.settings import Settings
from services.signing import signing_key

COOKIE = "longtail_session"
LASTS_S = 12 * 3600


@dataclass(frozen=True)
class SignedIn:
    """A session that was read from a cookie made here and not yet expired."""

    token_id: uuid.UUID
    expires: int
    nonce: str


class Sessions:
    """Makes cookies and reads them. Whether the token still opens anything is the database's to say."""

    def __init__(self, settings: Settings) -> None:
        self._key = signing_key(settings)

    def start(self, token_id: uuid.UUID) -> str:
        """The cookie of a new session."""
        signed_in = SignedIn(token_id, int(time.time()) + LASTS_S, secrets.token_hex(8))
        return f"{_text(signed_in)}.{self._sign('session', signed_in)}"

    def read(self, cookie: str | None) -> SignedIn | None:
        """The session of a cookie, unless it was not made here or has expired."""
        parts = (cookie or "").split(".")
        if len(parts) != 4:
            return None
        try:
            signed_in = SignedIn(uuid.UUID(hex=parts[0]), int(parts[1]), parts[2])
        except ValueError:
            return None
        if not hmac.compare_digest(parts[3].encode(), self._sign("session", signed_in).encode()):
            return None
        return signed_in if signed_in.expires > time.time() else None

    def form_token(self, signed_in: SignedIn) -> str:
        """What every form of this session carries, so that no other site can send one in its name."""
        return self._sign("form", signed_in)

    def form_token_is_right(self, signed_in: SignedIn, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.form_token(signed_in).encode())

    def _sign(self, purpose: str, signed_in: SignedIn) -> str:
        return hmac.new(self._key, f"pages/{purpose}/{_text(signed_in)}".encode(), hashlib.sha256).hexdigest()


def local_path(address: str | None) -> str:
    """`address` where it is a path on this site, else the front page: nobody is sent elsewhere after signing in."""
    if not address or not address.startswith("/") or address.startswith(("//", "/\\")):
        return "/"
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or any(ord(character) < 32 for character in address):
        return "/"
    return address


def _text(signed_in: SignedIn) -> str:
    return f"{signed_in.token_id.hex}.{signed_in.expires}.{signed_in.nonce}"
