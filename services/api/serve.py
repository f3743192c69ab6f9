"""Serves the API in this process until it is told to stop."""

from __future__ import annotations

from typing import Any

import uvicorn

from services.api.app import make_app
from services.settings import Settings


def server_options(settings: Settings) -> dict[str, Any]:
    """How uvicorn serves the API; a benchmark serves what it is compared with in the same way."""
    return {
        "host": settings.api_host,
        "port": settings.api_port,
        "log_level": settings.log_level,
        "access_log": False,
        "timeout_graceful_shutdown": 10,
        "server_header": False,
    }


def serve(settings: Settings) -> None:
    """Blocks; SIGTERM and SIGINT end it after the requests in flight."""
    uvicorn.run(make_app(settings), **server_options(settings))


if __name__ == "__main__":
    serve(Settings())
