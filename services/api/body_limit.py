"""Bodies that are too large: JSON is refused while it arrives, and of no refused request is the rest read for long."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_JSON_BYTES = 64 << 20
DRAIN_BYTES = 8 << 20
"""So much of a refused body is still read, so that a client that sends it all before it listens hears the answer."""


class BodyLimit:
    """ASGI middleware: at most `max_bytes` of body, save for multipart forms, which have limits of their own.

    An answer that comes before the end of a body ends the connection when much is left of it. The server would read
    on for as long as the client sends, to use the connection again.
    """

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_JSON_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count what is received. Raises HTTPException 413 where the body is read."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope.get("headers", ()))
        is_form = headers.get(b"content-type", b"").lower().startswith(b"multipart/form-data")
        announced = headers.get(b"content-length", b"0")
        expected = float("inf") if b"transfer-encoding" in headers or not announced.isdigit() else int(announced)
        got = 0

        async def counted() -> Message:
            nonlocal got, expected
            message = await receive()
            if message["type"] == "http.request":
                got += len(message.get("body", b""))
                if not message.get("more_body", False):
                    expected = got
            if not is_form and got > self._max_bytes:
                raise HTTPException(413, f"the body has more than {self._max_bytes} bytes: send it in several requests")
            return message

        async def answered(message: Message) -> None:
            if message["type"] == "http.response.start" and expected - got > DRAIN_BYTES:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        await self._app(scope, counted, answered)
