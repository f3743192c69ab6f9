"""The API: one process, any number of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from fastapi import FastAPI
from sqlalchemy.exc import SQLAlchemyError

from engine.queries.erasures import living_frames
from services.api import errors
from services.api.body_limit import BodyLimit
from services.api.routes import (
    campaigns,
    clips,
    datasets,
    description,
    devices,
    erasures,
    health,
    holds,
    hooks,
    jobs,
    labels,
    lines,
    media,
    metrics,
    models,
    predictions,
    queue,
    runs,
    schedules,
)
from services.api.schemas.manifest import ManifestIn
from services.dashboard import failures, site
from services.hooks import LabelToolHook
from services.media_links import MediaLinks
from services.settings import Settings
from services.wiring import Wiring, opened

ROUTES = (
    health,
    clips,
    queue,
    campaigns,
    labels,
    datasets,
    runs,
    models,
    predictions,
    lines,
    schedules,
    jobs,
    devices,
    erasures,
    holds,
    metrics,
    media,
    hooks,
    description,
)


ABANDONED_S = 24 * 3600.0
"""An upload that has been quiet this long was broken off."""
FRAMES_A_QUERY = 1000


def make_app(settings: Settings) -> FastAPI:
    """The application; its database and blobs are opened when it starts to serve. Raises NotConfigured."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with ExitStack() as stack:
            wiring = stack.enter_context(opened(settings))
            wiring.blobs.sweep_temporary(ABANDONED_S)
            _forget_erased(wiring)
            app.state.wiring = wiring
            yield

    app = FastAPI(
        title="Longtail",
        version="0.1.0",
        description="The data engine's API. Errors are RFC 9457 problems that say what to do.",
        lifespan=lifespan,
        responses=errors.PROBLEMS,
        # Its usual pages load scripts from elsewhere, and are open to everyone; /openapi.json is a route of ours.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.links = MediaLinks(settings)
    app.state.hook = LabelToolHook(settings)
    app.add_middleware(BodyLimit)
    errors.install(app, failures.shown)
    for module in ROUTES:
        app.include_router(module.router)
    _describe_manifest(app)
    site.install(app)
    return app


def _forget_erased(wiring: Wiring) -> None:
    """Drop kept pictures of frames that were erased while this machine was off, or by a worker on another one."""
    kept = list(set(wiring.copies.frames()))
    for start in range(0, len(kept), FRAMES_A_QUERY):
        batch = kept[start : start + FRAMES_A_QUERY]
        try:
            with wiring.database.read() as session:
                living = living_frames(session, batch)
        except SQLAlchemyError:
            return  # the database is away: the API starts all the same, and serves none of them
        wiring.copies.forget_frames(set(batch) - living)


def _describe_manifest(app: FastAPI) -> None:
    """Put the manifest, which travels inside a form, into the OpenAPI document."""
    build = app.openapi

    def openapi() -> dict[str, object]:
        if app.openapi_schema is None:
            document = build()
            schema = ManifestIn.model_json_schema(ref_template="#/components/schemas/{model}")
            parts = schema.pop("$defs", {})
            document["components"]["schemas"].update({**parts, "ManifestIn": schema})
        return build()

    app.openapi = openapi  # type: ignore[method-assign]
