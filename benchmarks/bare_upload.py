"""What ingest is compared with: a bare handler that streams a request's bytes to disk, hashes and fsyncs them.

It looks into nothing, writes no row and knows no caller. `python -m benchmarks.bare_upload FOLDER PORT` serves it as
`services.api.serve` serves the API.
"""

from __future__ import annotations

import hashlib
import os
import sys
from itertools import count
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from services.api.serve import server_options
from services.settings import Settings


def make_bare(folder: Path) -> Starlette:
    """The application. Everything happens on its loop, which is the least that can be done."""
    numbers = count()

    async def upload(request: Request) -> JSONResponse:
        digest = hashlib.sha256()
        with (folder / str(next(numbers))).open("xb") as file:
            async for chunk in request.stream():
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        return JSONResponse({"sha256": digest.hexdigest()}, 202)

    async def alive(request: Request) -> JSONResponse:
        return JSONResponse({})

    return Starlette(routes=[Route("/v1/clips", upload, methods=["POST"]), Route("/healthz", alive)])


if __name__ == "__main__":
    uvicorn.run(make_bare(Path(sys.argv[1])), **server_options(Settings(api_port=int(sys.argv[2]))))
