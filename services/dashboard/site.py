"""The pages, put into the API's application."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from starlette.responses import Response
from starlette.types import Scope

from services.dashboard import pictures
from services.dashboard.pages import clips, datasets, gate, jobs, loop, models, queue, queue_actions, schedules, sign_in
from services.dashboard.rendering import STATIC

PAGES = (sign_in, loop, queue, queue_actions, gate, clips, models, datasets, schedules, jobs, pictures)


class _Assets(StaticFiles):
    """Static files. Their addresses change with their content, so a browser need not ask twice."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["X-Content-Type-Options"] = "nosniff"
        if b"v=" in scope["query_string"] and response.status_code == 200:
            response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def install(app: FastAPI) -> None:
    """Add every page, and the files that they load."""
    for module in PAGES:
        app.include_router(module.router, include_in_schema=False)
    app.mount("/static", _Assets(directory=STATIC), name="static")
