"""What a client is told when something is refused or fails: RFC 9457 problem+json that says what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from engine.adapters.blobs import BlobTooLarge
from engine.adapters.video.pool import MediaPoolBusy
from engine.domain.ontology import OntologyError
from engine.domain.refusals import Conflict, Gone, Invalid, NotAllowed, NotFound, Refused, Unauthenticated
from engine.ports import BlobCorrupt, BlobNotFound, MediaRejected

MEDIA_TYPE = "application/problem+json"
STATUS_OF: dict[type[Refused], int] = {
    Unauthenticated: 401,
    NotAllowed: 403,
    NotFound: 404,
    Gone: 410,
    Conflict: 409,
    Invalid: 422,
}

log = structlog.get_logger(__name__)


class Problem(BaseModel):
    """RFC 9457. `hint` says what to do about it; `errors` points at the fields that are wrong."""

    type: str = Field(examples=["/problems/clip-conflict"])
    title: str
    status: int
    detail: str
    hint: str
    errors: list[dict[str, str]] | None = None


PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Problem, "description": "Refused: the problem says why and what to do."},
    "5XX": {"model": Problem, "description": "Failed on our side: the problem says when to try again."},
}


Handler = Callable[[Request, Any], JSONResponse]
Shown = Callable[[Request, JSONResponse], Response]


class HttpRefusal(Exception):
    """Refused by the edge itself, before it means anything to the engine."""

    def __init__(self, status: int, code: str, detail: str, hint: str) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.hint = status, code, detail, hint


def problem(
    status: int,
    code: str,
    detail: str,
    hint: str,
    headers: Mapping[str, str] | None = None,
    errors: list[dict[str, str]] | None = None,
) -> JSONResponse:
    """The answer for one problem; `code` is its type's last part."""
    document = Problem(
        type=f"/problems/{code}",
        title=code.replace("-", " ").capitalize(),
        status=status,
        detail=detail,
        hint=hint,
        errors=errors,
    )
    return JSONResponse(document.model_dump(exclude_none=True), status, dict(headers or {}), MEDIA_TYPE)


def of_validation(error: RequestValidationError) -> JSONResponse:
    """422, with a pointer to every field that is wrong."""
    found = [
        {"pointer": _short("/" + "/".join(str(part) for part in item["loc"])), "detail": _short(item["msg"])}
        for item in error.errors()
    ]
    first = found[0] if found else {"pointer": "/", "detail": "is not valid"}
    return problem(
        422,
        "invalid-request",
        f"the request is not valid at {first['pointer']}: {first['detail']}"
        + (f" (and {len(found) - 1} more)" if found[1:] else ""),
        "correct the fields in `errors`; /openapi.json says what each takes",
        errors=found[:50],
    )


def _short(text: str, most: int = 500) -> str:
    """A text that may hold what was sent, such as the name of an unknown field: no answer is as long as its request."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def install(app: FastAPI, shown: Shown = lambda request, told: told) -> None:
    """Answer every refusal and failure of the app with a problem, as `shown` puts it to whoever asked."""

    def handles(*kinds: type[Exception]) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            def answer(request: Request, error: Any) -> Response:
                return shown(request, handler(request, error))

            for kind in kinds:
                app.add_exception_handler(kind, answer)
            return handler

        return add

    @handles(Refused)
    def refused(request: Request, error: Refused) -> JSONResponse:
        status = next(code for kind, code in STATUS_OF.items() if isinstance(error, kind))
        headers = {"WWW-Authenticate": 'Bearer realm="longtail"'} if status == 401 else {}
        return problem(status, error.code, error.detail, error.hint, headers)

    @handles(HttpRefusal)
    def bad_request(request: Request, error: HttpRefusal) -> JSONResponse:
        return problem(error.status, error.code, error.detail, error.hint)

    @handles(ClientDisconnect)
    def gone(request: Request, error: ClientDisconnect) -> JSONResponse:
        # Vehicles drive into tunnels: this is no failure of ours, and nobody is there to be told.
        log.info("sender gone", method=request.method, path=request.url.path)
        return problem(400, "broken-off", "the request broke off before its end", "send it again, whole")

    @handles(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return of_validation(error)

    @handles(OntologyError)
    def bad_ontology(request: Request, error: OntologyError) -> JSONResponse:
        return problem(422, "invalid-ontology", str(error), "correct the ontology's document and send it again")

    @handles(BlobTooLarge)
    def too_large(request: Request, error: BlobTooLarge) -> JSONResponse:
        return problem(
            413, "too-large", str(error), "send a shorter clip; the operator may raise LONGTAIL_MAX_UPLOAD_BYTES"
        )

    @handles(MediaRejected)
    def media_rejected(request: Request, error: MediaRejected) -> JSONResponse:
        return problem(422, "media-rejected", str(error), "it is no picture or video that can be shown")

    @handles(ProgrammingError)
    def not_migrated(request: Request, error: ProgrammingError) -> JSONResponse:
        log.error("database query failed", path=request.url.path, error=str(error))
        return problem(
            503,
            "database-not-ready",
            "the database lacks tables that this version needs",
            "run the migrations: `longtail up`",
        )

    @handles(MediaPoolBusy)
    def busy(request: Request, error: MediaPoolBusy) -> JSONResponse:
        return problem(503, "busy", str(error), "send it again in a few seconds", {"Retry-After": "5"})

    @handles(OperationalError, PoolTimeout)
    def database_down(request: Request, error: Exception) -> JSONResponse:
        log.error("database unavailable", path=request.url.path, error=str(error))
        return problem(
            503,
            "database-unavailable",
            "the database can't be reached",
            "try again in a few seconds",
            {"Retry-After": "5"},
        )

    @handles(BlobNotFound, BlobCorrupt)
    def blob_lost(request: Request, error: Exception) -> JSONResponse:
        log.error("blob lost", path=request.url.path, error=str(error))
        return problem(500, "blob-lost", str(error), "tell the operator: a stored file is missing or damaged")

    @handles(HTTPException)
    def http(request: Request, error: HTTPException) -> JSONResponse:
        status = HTTPStatus(error.status_code)
        hint = (
            "see /openapi.json for the addresses and methods that there are"
            if status in (404, 405)
            else "correct the request"
        )
        detail = (
            error.detail if error.detail != status.phrase else f"{request.method} {request.url.path}: {status.phrase}"
        )
        return problem(status.value, status.phrase.lower().replace(" ", "-"), detail, hint, error.headers)

    @handles(Exception)
    def failed(request: Request, error: Exception) -> JSONResponse:
        log.error("request failed", method=request.method, path=request.url.path, exc_info=error)
        # The server drops the connection after an exception: the client should not send its next request on it.
        return problem(
            500,
            "failed",
            "the request failed on our side",
            "try again; if it stays, tell the operator",
            {"Connection": "close"},
        )
