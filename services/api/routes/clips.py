"""/v1/clips: recordings come in, and what became of them."""

from __future__ import annotations

import time
import uuid
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from engine.domain.access import Principal
from engine.domain.refusals import Invalid
from engine.queries import clips as views
from engine.stages.ingest import IngestResult, ingest
from services.api.deps import Caller, IdempotencyKeyHeader, Wired, having
from services.api.etag import EtagRoute
from services.api.multipart import Form, received
from services.api.paging import Cursor, Limit, PageOut, page_out
from services.api.schemas.clips import ClipAccepted, ClipOut, ClipSummary
from services.api.schemas.manifest import ManifestIn
from services.wiring import Wiring

router = APIRouter(prefix="/v1/clips", tags=["clips"], route_class=EtagRoute)

MANIFEST = "manifest"
STREAM = "stream:"
FORM_SCHEMA: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": [MANIFEST],
                    "properties": {
                        MANIFEST: {
                            "type": "string",
                            "contentMediaType": "application/json",
                            "contentSchema": {"$ref": "#/components/schemas/ManifestIn"},
                            "description": "All that is said of the clip; at most 1 MiB.",
                        }
                    },
                    "additionalProperties": {
                        "type": "string",
                        "format": "binary",
                        "description": "One file for each stream of the manifest, in a part named `stream:<name>`.",
                    },
                }
            }
        },
    }
}


@router.post("", status_code=202, response_model=ClipAccepted, openapi_extra=FORM_SCHEMA, summary="Send a clip")
async def post_clip(
    request: Request,
    response: Response,
    wiring: Wired,
    principal: Annotated[Principal, Depends(having("clips:write"))],
    idempotency_key: IdempotencyKeyHeader = None,
) -> ClipAccepted:
    """202, with the clip's Location, once its bytes and its row are durable. The same clip again is the same clip."""
    async with received(request, wiring.blobs, lambda name: name == MANIFEST, wiring.settings.max_upload_bytes) as form:
        result = await run_in_threadpool(_take, wiring, principal, form, idempotency_key)
    location = f"/v1/clips/{result.clip_id}"
    response.headers["Location"] = location
    return ClipAccepted(
        id=result.clip_id, location=location, created=result.created, clock_suspect=result.clock_suspect
    )


def _take(wiring: Wiring, principal: Principal, form: Form, idempotency_key: str | None) -> IngestResult:
    document = form.documents.get(MANIFEST)
    if document is None:
        raise Invalid(
            "manifest-missing",
            "the form has no part named 'manifest'",
            "send the manifest as JSON in a part of its own",
        )
    try:
        manifest = ManifestIn.model_validate_json(bytes(document))
    except ValidationError as error:
        raise RequestValidationError(
            [
                {**item, "loc": (MANIFEST, *item["loc"])}
                for item in error.errors(include_context=False, include_input=False)
            ]
        ) from error
    for name in form.files:
        if not name.startswith(STREAM):
            raise Invalid(
                "part-unknown",
                f"the form has a part {name!r}",
                "parts are 'manifest' and one 'stream:<name>' for each stream",
            )
    return ingest(
        wiring.database,
        wiring.probe,
        principal,
        manifest.to_domain(),
        {name.removeprefix(STREAM): file for name, file in form.files.items()},
        time.time_ns(),
        idempotency_key,
    )


@router.get("", response_model=PageOut[ClipSummary], summary="List clips, oldest first")
def list_clips(
    wiring: Wired,
    principal: Annotated[Principal, Depends(having("clips:read"))],
    limit: Limit = 50,
    after: Cursor = None,
    state: Literal["offered", "requested", "received", "scored", "expired", "erased"] | None = None,
    split: Literal["pool", "golden"] | None = None,
    vehicle: Annotated[str | None, Query(max_length=200)] = None,
    drive: Annotated[str | None, Query(max_length=200)] = None,
) -> Any:
    with wiring.database.read() as session:
        rows = views.listing(
            session,
            principal.project_id,
            limit=limit + 1,
            after=after,
            state=state,
            split=split,
            vehicle=vehicle,
            drive=drive,
        )
    return page_out(rows, limit)


@router.get("/{clip_id}", response_model=ClipOut, summary="One clip: state, scores, why chosen, lineage")
def get_clip(clip_id: uuid.UUID, wiring: Wired, principal: Caller) -> Any:
    """A device's key sees the clips of its own vehicles, as if there were no others. Others need `clips:read`."""
    if principal.kind != "device":
        principal.demand("clips:read")
    with wiring.database.read() as session:
        clip = views.detail(session, principal.project_id, clip_id)
    if not principal.may_send_for(clip["vehicle"]):
        raise views.no_such_clip(clip_id)
    return clip
