"""The API's description of itself."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from services.api.deps import Caller

router = APIRouter(tags=["description"])


@router.get("/openapi.json", summary="The OpenAPI document", response_class=JSONResponse)
def get_openapi(request: Request, principal: Caller) -> JSONResponse:
    """For any caller that is known here."""
    return JSONResponse(request.app.openapi())
