"""The label tool's webhook: where it is told to call, and how a call is known to be its own.

The tool signs nothing, so the address carries a key of its own that follows from our secret.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid

from services.settings import Settings
from services.signing import signing_key

HEADER = "X-Longtail-Hook"


class LabelToolHook:
    """Makes the address and the key of the webhook of a project, and checks the key of a call."""

    def __init__(self, settings: Settings) -> None:
        self._key = signing_key(settings)
        self._base = settings.api_url

    def url(self, project_id: uuid.UUID) -> str:
        """Where the label tool calls for this project."""
        return f"{self._base}/hooks/label-studio/{project_id}"

    def headers(self, project_id: uuid.UUID) -> dict[str, str]:
        """What its calls carry."""
        return {HEADER: self._sign(project_id)}

    def is_ours(self, project_id: uuid.UUID, key: str) -> bool:
        """Whether a call for this project carries its key."""
        return hmac.compare_digest(key.encode(), self._sign(project_id).encode())

    def _sign(self, project_id: uuid.UUID) -> str:
        return hmac.new(self._key, f"label tool hook/{project_id}".encode(), hashlib.sha256).hexdigest()
