"""Signing in with a token, and out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import RedirectResponse, Response

from engine.domain.access import ADMIN, secret_sha256
from engine.store.access import principal_of
from services.api.deps import Wired
from services.dashboard.page_route import PageRoute
from services.dashboard.rendering import render
from services.dashboard.session import COOKIE, LASTS_S, Sessions, local_path
from services.dashboard.visitor import Visitor, visitor

router = APIRouter(route_class=PageRoute)


@router.get("/login")
def form(request: Request, next: str = "/") -> Response:
    """The form to sign in with."""
    return render(request, "sign_in.html", next=local_path(next), problem=None)


@router.post("/login")
def sign_in(
    request: Request, wiring: Wired, token: Annotated[str, Form()] = "", next: Annotated[str, Form()] = "/"
) -> Response:
    """Start a session for the holder of a token. A device's key opens no page."""
    with wiring.database.read() as session:
        principal = principal_of(session, secret_sha256(token.strip()))
    if principal is None or principal.kind != "token":
        problem = "This token is not known here, was revoked or has expired."
        return render(request, "sign_in.html", status=401, next=local_path(next), problem=problem)
    if not any(scope == ADMIN or scope.endswith(":read") for scope in principal.scopes):
        problem = "This token may read nothing: ask for one with a scope that ends in “:read”."
        return render(request, "sign_in.html", status=403, next=local_path(next), problem=problem)
    response = RedirectResponse(local_path(next), 303)
    response.set_cookie(
        COOKIE,
        Sessions(wiring.settings).start(principal.id),
        max_age=LASTS_S,
        httponly=True,
        samesite="lax",
        secure=wiring.settings.api_url.startswith("https://"),
    )
    return response


@router.post("/logout")
def sign_out(who: Annotated[Visitor, Depends(visitor)], form_token: Annotated[str, Form()] = "") -> Response:
    """End the session in this browser."""
    response = RedirectResponse("/login", 303)
    if Sessions(who.wiring.settings).form_token_is_right(who.signed_in, form_token):
        response.delete_cookie(COOKIE)
    return response
