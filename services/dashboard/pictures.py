"""Pictures of frames and what a model said of them, for the pages' canvases."""

from __future__ import annotations

import io
import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query
from fastapi.responses import JSONResponse, Response
from PIL import Image

from engine.adapters.video.pool import MediaPoolBusy
from engine.domain.refusals import NotFound
from engine.ports import BlobNotFound, MediaRejected, Picture
from engine.queries.frame_views import PictureSource, picture_source, prediction_source
from engine.store.predictions import read
from services.dashboard.overlays import document
from services.dashboard.page_route import PageRoute
from services.dashboard.visitor import Visitor, seeing
from services.wiring import Wiring

router = APIRouter(route_class=PageRoute)

THUMBNAIL_PIXELS = 640
VIEW_PIXELS = 1920
QUALITY = 88
# A frame's bytes never change, so neither does its picture; private, because it was given to one signed-in person.
KEEP = {"Cache-Control": "private, max-age=86400"}


@router.get("/frames/{frame_id}/picture")
def picture(
    frame_id: uuid.UUID, who: Annotated[Visitor, Depends(seeing("queue:read"))], large: bool = False
) -> Response:
    """The frame's picture as a JPEG: pinned or decoded from its clip, redacted, made no wider than it is shown."""
    wiring = who.wiring
    with wiring.database.read() as session:
        source = picture_source(session, who.principal.project_id, frame_id)
    width = VIEW_PIXELS if large else THUMBNAIL_PIXELS
    # By the redactor, too: what one lets through, another may not.
    kept = wiring.copies.picture(frame_id, width, type(wiring.redactor).__name__)
    if kept.is_file():
        return Response(kept.read_bytes(), media_type="image/jpeg", headers=KEEP)
    try:
        decoded = _decoded(wiring, source)
    except MediaPoolBusy as busy:
        raise HTTPException(503, str(busy), {"Retry-After": "2"}) from busy
    except (BlobNotFound, MediaRejected) as lost:
        raise HTTPException(404, f"the picture can't be had: {lost}") from lost
    content = _jpeg(wiring.redactor.redact(decoded), width)
    wiring.copies.keep_picture(kept, content)
    try:
        with wiring.database.read() as session:
            picture_source(session, who.principal.project_id, frame_id)
    except NotFound:
        wiring.copies.forget_frames([frame_id])  # erased while it was being made
        raise
    return Response(content, media_type="image/jpeg", headers=KEEP)


@router.get("/frames/{frame_id}/predictions")
def predictions(
    frame_id: uuid.UUID,
    who: Annotated[Visitor, Depends(seeing("queue:read"))],
    model: Annotated[uuid.UUID | None, Query()] = None,
) -> Response:
    """What a model version said of the frame, head by head, in a form that a canvas can draw."""
    with who.wiring.database.read() as session:
        source = prediction_source(session, who.principal.project_id, frame_id, model)
    told: dict[str, Any] = document(source, read(who.wiring.blobs.read(source.predictions_sha256), str(frame_id)))
    return JSONResponse(told, headers={"Cache-Control": "private, max-age=3600"})


def _decoded(wiring: Wiring, source: PictureSource) -> Picture:
    if source.picture_sha256 is not None:
        return wiring.reader.decode_image(wiring.blobs.read(source.picture_sha256))
    if source.stream_sha256 is None:
        raise BlobNotFound("its recording is outside and was not read yet")
    for found in wiring.reader.frames(wiring.blobs.local_path(source.stream_sha256), [source.pts]):
        return found
    raise MediaRejected("the clip has no frame there")


def _jpeg(picture: Picture, width: int) -> bytes:
    image = Image.frombytes("RGB", (picture.width, picture.height), picture.rgb)
    if picture.width > width:
        image = image.resize((width, max(1, round(picture.height * width / picture.width))), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=QUALITY, subsampling=0)
    return out.getvalue()
