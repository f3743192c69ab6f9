"""What routes ask for: the wiring, who is calling, and what they may do."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from engine.domain.access import Principal, secret_sha256
from engine.domain.refusals import Invalid, Unauthenticated
from engine.stages.idempotency import Answer, RequestKey
from engine.store.access import principal_of
from services.wiring import Wiring

_bearer = HTTPBearer(auto_error=False, description="A scoped token, or a device's key.")


async def wiring_of(request: Request) -> Wiring:
    """The adapters of this process, opened when it started."""
    # This and `having` are async, as what never waits needs no thread: each would be handed to one and back.
    wiring: Wiring = request.app.state.wiring
    return wiring


Wired = Annotated[Wiring, Depends(wiring_of)]


def caller(wiring: Wired, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]) -> Principal:
    """Whose secret came with the request. Raises Unauthenticated."""
    if credentials is None:
        raise Unauthenticated(
            "no-token",
            "this needs a token or a device's key, and the request has none",
            "send `Authorization: Bearer <token>`; an administrator makes one with `longtail tokens create`",
        )
    with wiring.database.read() as session:
        principal = principal_of(session, secret_sha256(credentials.credentials))
    if principal is None:
        raise Unauthenticated(
            "unknown-token",
            "this token is not known here, was revoked or has expired",
            "check it, or have an administrator make another",
        )
    return principal


Caller = Annotated[Principal, Depends(caller)]


def having(scope: str) -> Callable[[Principal], Awaitable[Principal]]:
    """A dependency: the caller, who must have this scope. Raises NotAllowed."""

    async def check(principal: Caller) -> Principal:
        principal.demand(scope)
        return principal

    return check


IdempotencyKeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="A request sent again under the same key gets the first one's answer.",
    ),
]


async def idempotent(request: Request, principal: Caller, key: IdempotencyKeyHeader = None) -> RequestKey | None:
    """What the request's `Idempotency-Key` stands for: this caller's request with these very bytes."""
    if key is None:
        return None
    content = f"{request.method} {request.url.path}?{request.url.query}\n".encode() + await request.body()
    return RequestKey(principal, key, hashlib.sha256(content).hexdigest())


Idempotent = Annotated[RequestKey | None, Depends(idempotent)]


def without_idempotency(request: Request) -> None:
    """A dependency where answers can't be kept: it refuses the key that would promise so. Raises Invalid."""
    if "idempotency-key" in request.headers:
        raise Invalid(
            "idempotency-key-unsupported",
            f"{request.method} {request.url.path} takes no Idempotency-Key: what it answers is not kept",
            "leave the header out; before sending it again, look into the list whether the first one was done",
        )


def answer(response: Response, told: Answer) -> dict[str, Any]:
    """The body of a kept answer, its status and headers put on the response."""
    response.status_code = told.status
    response.headers.update(told.headers)
    return told.body
