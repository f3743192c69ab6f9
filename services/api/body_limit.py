"""Refuses JSON bodies that are too large while they arrive; uploads have a limit of their own."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_JSON_BYTES = 64 << 20


class BodyLimit:
    """ASGI middleware: at most `max_bytes` of body, save for multipart forms."""

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_JSON_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count what is received. Raises HTTPException 413 where the body is read."""
        headers = dict(scope.get("headers", ()))
        if scope["type"] != "http" or headers.get(b"content-type", b"").lower().startswith(b"multipart/form-data"):
            await self._app(scope, receive, send)
            return
        got = 0

        async def counted() -> Message:
            nonlocal got
            message = await receive()
            got += len(message.get("body", b""))
            if got > self._max_bytes:
                raise HTTPException(413, f"the body has more than {self._max_bytes} bytes: send it in several requests")
            return message

        await self._app(scope, counted, send)
