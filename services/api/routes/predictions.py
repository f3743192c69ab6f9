"""/v1/predictions: what models say that are not asked here, for clips and for golden sets."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from engine.domain.access import Principal
from engine.domain.refusals import Invalid
from engine.queries import datasets as views
from engine.stages.take_predictions import Taken, take_golden_predictions, take_predictions
from services.api.deps import Wired, having, without_idempotency
from services.api.etag import EtagRoute
from services.api.paging import Cursor, Limit, PageOut, page_out
from services.api.schemas.predictions import GoldenPictureOut, GoldenPredictionsIn, PredictionsIn, PredictionsTaken

router = APIRouter(prefix="/v1", tags=["predictions"], route_class=EtagRoute)

GoldenReader = Annotated[Principal, Depends(having("datasets:read"))]
Writer = Annotated[Principal, Depends(having("models:write"))]

LINK_S = 24 * 3600.0


@router.post(
    "/predictions",
    response_model=PredictionsTaken,
    status_code=201,
    responses={200: {"model": PredictionsTaken, "description": "The very same was recorded before."}},
    dependencies=[Depends(without_idempotency)],
    summary="Send what a model version says of a clip",
)
def post_predictions(body: PredictionsIn, response: Response, wiring: Wired, principal: Writer) -> Any:
    """It is recorded as if the version had been asked here. The same again changes nothing (and needs no
    `Idempotency-Key`, which is refused); something else of the same clip is a conflict."""
    taken = take_predictions(
        wiring.database,
        wiring.blobs,
        principal.project_id,
        body.model,
        body.clip,
        body.to_domain(),
        str(principal),
    )
    return _told(response, taken)


@router.get(
    "/golden-sets/{golden_set_id}/pictures",
    response_model=PageOut[GoldenPictureOut],
    summary="The pictures of a golden set, without their labels",
)
def list_golden_pictures(
    golden_set_id: uuid.UUID,
    request: Request,
    wiring: Wired,
    principal: GoldenReader,
    limit: Limit = 50,
    after: Cursor = None,
) -> Any:
    """For models that can't be asked here. Nothing may be trained on them."""
    with wiring.database.read() as session:
        rows = views.golden_pictures(session, principal.project_id, golden_set_id, limit + 1, after)
    links = request.app.state.links
    return page_out([{**row, "url": links.url(row["picture_sha256"], LINK_S)} for row in rows], limit)


@router.post(
    "/golden-sets/{golden_set_id}/predictions",
    response_model=PredictionsTaken,
    status_code=201,
    responses={200: {"model": PredictionsTaken, "description": "The very same was recorded before."}},
    dependencies=[Depends(without_idempotency)],
    summary="Send what a model version says of a golden set",
)
def post_golden_predictions(
    golden_set_id: uuid.UUID, body: GoldenPredictionsIn, response: Response, wiring: Wired, principal: Writer
) -> Any:
    """Only for a version of the format `predictions`: any other one is asked by the gate itself. Once sent, they can't
    be changed."""
    try:
        scores = body.to_domain()
    except ValueError as error:
        raise Invalid("invalid-prediction", str(error), "send each subject once") from error
    taken = take_golden_predictions(
        wiring.database, wiring.blobs, principal.project_id, body.model, golden_set_id, scores, str(principal)
    )
    return _told(response, taken)


def _told(response: Response, taken: Taken) -> dict[str, Any]:
    if not taken.created:
        response.status_code = 200
    return dataclasses.asdict(taken)
