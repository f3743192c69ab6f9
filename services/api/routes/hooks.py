"""/hooks: what the label tool calls when somebody has labelled. A hint, no more: the sweep would find it anyway."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from engine.domain.refusals import NotAllowed, Unauthenticated
from engine.stages.collect import hint
from services.api.deps import Wired
from services.hooks import HEADER

router = APIRouter(tags=["hooks"])


@router.post("/hooks/label-studio/{project_id}", status_code=204, summary="Something was labelled")
def label_studio(
    request: Request, wiring: Wired, project_id: uuid.UUID, key: Annotated[str | None, Header(alias=HEADER)] = None
) -> Response:
    """The body is not read: annotations are collected from the label tool itself."""
    if key is None:
        raise Unauthenticated("no-token", f"this call has no {HEADER}", "let a labeling worker set the hook up")
    if not request.app.state.hook.is_ours(project_id, key):
        raise NotAllowed("bad-hook", "this call does not carry the hook's key", "let a labeling worker set the hook up")
    with wiring.database.unit() as unit:
        hint(unit, project_id)
        unit.commit()
    return Response(status_code=204)
