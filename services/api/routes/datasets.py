"""/v1/datasets and /v1/golden-sets: what models are trained on and judged on."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.responses import FileResponse

from engine.domain.access import Principal
from engine.queries import datasets as views
from services.api.deps import Wired, having
from services.api.etag import EtagRoute
from services.api.paging import Cursor, Limit, PageOut, page_out
from services.api.schemas.fields import Name
from services.api.schemas.labels import DatasetOut, GoldenSetOut

router = APIRouter(prefix="/v1", tags=["datasets"], route_class=EtagRoute)

Reader = Annotated[Principal, Depends(having("datasets:read"))]


@router.get("/datasets", response_model=PageOut[DatasetOut], summary="List dataset versions")
def list_datasets(
    wiring: Wired,
    principal: Reader,
    limit: Limit = 50,
    after: Cursor = None,
    line: Annotated[Name | None, Query()] = None,
) -> Any:
    with wiring.database.read() as session:
        return page_out(views.listing(session, principal.project_id, limit + 1, after, line), limit)


@router.get("/datasets/{dataset_id}", response_model=DatasetOut, summary="One dataset version")
def get_dataset(dataset_id: uuid.UUID, wiring: Wired, principal: Reader) -> Any:
    with wiring.database.read() as session:
        return views.detail(session, principal.project_id, dataset_id)


@router.get(
    "/datasets/{dataset_id}/manifest",
    summary="The manifest: Parquet, one row a label, with a JSON header",
    response_class=FileResponse,
    responses={200: {"content": {"application/vnd.apache.parquet": {}}}},
)
def get_manifest(dataset_id: uuid.UUID, wiring: Wired, principal: Reader) -> FileResponse:
    dataset = get_dataset(dataset_id, wiring, principal)
    sha256 = dataset["manifest_sha256"]
    return FileResponse(
        wiring.blobs.local_path(sha256),
        media_type="application/vnd.apache.parquet",
        filename=f"{dataset['line']}-{dataset['number']}.parquet",
        headers={"ETag": f'"{sha256}"'},
    )


@router.get("/golden-sets", response_model=PageOut[GoldenSetOut], summary="List golden sets")
def list_golden_sets(wiring: Wired, principal: Reader, limit: Limit = 50, after: Cursor = None) -> Any:
    with wiring.database.read() as session:
        return page_out(views.golden_listing(session, principal.project_id, limit + 1, after), limit)
