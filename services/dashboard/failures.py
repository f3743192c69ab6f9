"""Problems that no page answered itself (an address that is none, a failure on our side), as a page for browsers."""

from __future__ import annotations

import json

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from services.dashboard.page_route import HEADERS, is_fragment, refusal

API = "/v1/"


def shown(request: Request, told: JSONResponse) -> Response:
    """The problem as a page, where a browser asked for one; programs, and all of the API, get it as it is."""
    wants_page = is_fragment(request) or "text/html" in request.headers.get("accept", "")
    if request.url.path.startswith(API) or not wants_page:
        return told
    problem = json.loads(bytes(told.body))
    hint = "check the address, or begin at the loop" if told.status_code == 404 else problem["hint"]
    page = refusal(request, told.status_code, problem["detail"], hint)
    for name in ("retry-after", "allow", "connection"):
        if name in told.headers:
            page.headers[name] = told.headers[name]
    page.headers.update({**HEADERS, "Cache-Control": "private, no-store"})
    return page
