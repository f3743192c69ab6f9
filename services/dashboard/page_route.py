"""How pages answer: safe headers, refusals as pages that say what to do, signing in where it is needed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute

from engine.domain.refusals import NotAllowed, Refused, Unauthenticated
from services.api.errors import STATUS_OF
from services.dashboard.rendering import render
from services.wiring import NotConfigured

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """A route for people. A form sent from another site is refused before anything is read of it."""

    def get_route_handler(self) -> Handler:
        """The handler, with refusals turned into pages and the headers put on."""
        handler = super().get_route_handler()

        async def paged(request: Request) -> Response:
            try:
                if request.method == "POST":
                    _refuse_other_sites(request)
                response = await handler(request)
            except Unauthenticated:
                response = _to_sign_in(request)
            except Refused as refused:
                status = next(code for kind, code in STATUS_OF.items() if isinstance(refused, kind))
                response = refusal(request, status, refused.detail, refused.hint)
            except RequestValidationError as wrong:
                where = "/".join(str(part) for part in wrong.errors()[0]["loc"][1:]) if wrong.errors() else ""
                response = refusal(
                    request, 422, f"{where or 'the address'}: {wrong.errors()[0]['msg']}", "go back and correct it"
                )
            except NotConfigured as missing:
                response = refusal(request, 503, str(missing), "then start the API again")
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            response.headers.setdefault("Cache-Control", "private, no-store")
            return response

        return paged


def is_fragment(request: Request) -> bool:
    """Whether the page asks for a part of itself, and not the browser for a page."""
    return request.headers.get("hx-request") == "true"


def _refuse_other_sites(request: Request) -> None:
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise NotAllowed("other-site", "this form was sent from another site", "do it on the page itself")


def _to_sign_in(request: Request) -> Response:
    if is_fragment(request):
        return Response(status_code=401, headers={"HX-Redirect": "/login"})
    if request.method != "GET":
        return RedirectResponse("/login", 303)
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse("/login" if here == "/" else f"/login?next={quote(here)}", 303)


def refusal(request: Request, status: int, detail: str, hint: str) -> Response:
    """Why something was not done, and what to do, as a page or as a notice on the page that asked."""
    if is_fragment(request):
        response = render(request, "parts/notice.html", status=status, notice=f"Not done: {detail}. {hint}.", bad=True)
        response.headers.update({"HX-Retarget": "#notice", "HX-Reswap": "outerHTML"})
        return response
    return render(request, "refused.html", status=status, title=HTTPStatus(status).phrase, detail=detail, hint=hint)
