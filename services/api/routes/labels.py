"""/v1/labels: the accepted answers, and those that come from sensors, simulators and imports."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query

from engine.domain.access import Principal
from engine.queries import labels as views
from engine.stages.import_labels import ImportResult, import_labels
from services.api.deps import Idempotent, Wired, having
from services.api.etag import EtagRoute
from services.api.paging import Cursor, Limit, PageOut, page_out
from services.api.schemas.fields import Name
from services.api.schemas.labels import LabelOut, LabelsImported, LabelsIn

router = APIRouter(tags=["labels"], route_class=EtagRoute)

Reader = Annotated[Principal, Depends(having("labels:read"))]
Writer = Annotated[Principal, Depends(having("labels:write"))]


@router.get("/v1/labels", response_model=PageOut[LabelOut], summary="List labels")
def list_labels(
    wiring: Wired,
    principal: Reader,
    limit: Limit = 50,
    after: Cursor = None,
    head: Annotated[Name | None, Query()] = None,
    source: Literal["human", "sensor", "simulator", "import", "auto"] | None = None,
    clip: uuid.UUID | None = None,
    subject: uuid.UUID | None = None,
    all_revisions: bool = False,
) -> Any:
    with wiring.database.read() as session:
        rows = views.listing(
            session,
            principal.project_id,
            limit=limit + 1,
            after=after,
            head=head,
            source=source,
            clip_id=clip,
            subject_id=subject,
            all_revisions=all_revisions,
        )
    return page_out(rows, limit)


@router.get("/v1/labels/{label_id}", response_model=LabelOut, summary="One label")
def get_label(label_id: uuid.UUID, wiring: Wired, principal: Reader) -> Any:
    with wiring.database.read() as session:
        return views.detail(session, principal.project_id, label_id)


@router.post("/v1/labels:import", response_model=LabelsImported, summary="Import labels, all or none")
def post_labels(body: LabelsIn, wiring: Wired, principal: Writer, request: Idempotent) -> ImportResult:
    """The same labels again change nothing. A device may send what its own vehicles' sensors or simulator say."""
    return import_labels(
        wiring.database,
        wiring.blobs,
        principal,
        body.ontology.name,
        body.ontology.version,
        body.source,
        body.to_domain(),
        request,
    )
