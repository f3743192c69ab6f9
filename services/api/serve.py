"""Serves the API in this process until it is told to stop."""

from __future__ import annotations

import uvicorn

from services.api.app import make_app
from services.settings import Settings


def serve(settings: Settings) -> None:
    """Blocks; SIGTERM and SIGINT end it after the requests in flight."""
    uvicorn.run(
        make_app(settings),
        host=settings.api_host,
        port=settings.api_port,
        log_level=settings.log_level,
        access_log=False,
        timeout_graceful_shutdown=10,
        server_header=False,
    )


if __name__ == "__main__":
    serve(Settings())
