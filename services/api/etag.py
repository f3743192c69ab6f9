"""ETags: a GET that has not changed costs a client no bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.responses import StreamingResponse

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class EtagRoute(APIRoute):
    """A route whose GET answers carry an ETag, and are 304 where the client has them already."""

    def get_route_handler(self) -> Handler:
        """The handler, with the ETag put on what it answers."""
        handler = super().get_route_handler()
        if "GET" not in (self.methods or ()):
            return handler

        async def tagged(request: Request) -> Response:
            response = await handler(request)
            if response.status_code != 200 or isinstance(response, StreamingResponse) or not response.body:
                return response
            tag = f'"{hashlib.sha256(response.body).hexdigest()[:32]}"'
            wanted = {part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")}
            if tag in wanted or "*" in wanted:
                return Response(status_code=304, headers={"ETag": tag})
            response.headers["ETag"] = tag
            return response

        return tagged
