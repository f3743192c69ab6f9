"""/media: pictures by signed, expiring links, for the label tool and the pages. The link is the permission."""

from __future__ import annotations

import io
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from PIL import Image

from engine.domain.refusals import NotAllowed, NotFound
from engine.ports import BlobNotFound, Picture
from services.api.deps import Wired
from services.media_links import BadLink

router = APIRouter(tags=["media"])

Sha256 = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
PNG, JPEG = "image/png", "image/jpeg"


@router.get(
    "/media/{signature}/{expires}/{sha256}",
    summary="A picture",
    response_class=Response,
    responses={200: {"content": {PNG: {}, JPEG: {}}}},
)
def get_media(
    request: Request,
    wiring: Wired,
    signature: Sha256,
    expires: Annotated[int, Path(ge=0, le=10**11)],
    sha256: Sha256,
    w: Annotated[int | None, Query(ge=16, le=2048, description="Scale down to this width in pixels.")] = None,
) -> Response:
    """Any page may read it across origins: a label tool's canvas has to, and whoever has the link may see it anyway."""
    try:
        left_s = request.app.state.links.check(signature, expires, sha256)
    except BadLink as error:
        raise NotAllowed("bad-link", str(error), "get a fresh link from the page or API that gave this one") from error
    headers = {
        "Access-Control-Allow-Origin": "*",
        "Cache-Control": f"private, max-age={int(left_s)}, immutable",
        "Content-Security-Policy": "default-src 'none'",
        "ETag": f'"{sha256}-{w or 0}"',
        "X-Content-Type-Options": "nosniff",
    }
    if request.headers.get("if-none-match") == headers["ETag"] and wiring.blobs.exists(sha256):
        return Response(status_code=304, headers=headers)
    try:
        stored = wiring.blobs.read(sha256)
    except BlobNotFound as error:
        raise NotFound("no-such-picture", f"there is no picture {sha256}", "it may have been erased") from error
    picture = wiring.reader.decode_image(stored)
    shown = wiring.redactor.redact(picture)
    if w is not None and w < shown.width:
        return Response(_thumbnail(shown, w), media_type=JPEG, headers=headers)
    if shown is picture:
        media_type = PNG if stored.startswith(b"\x89PNG") else JPEG
        return Response(stored, media_type=media_type, headers=headers)
    return Response(wiring.reader.encode_png(shown), media_type=PNG, headers=headers)


def _thumbnail(picture: Picture, width: int) -> bytes:
    image = Image.frombytes("RGB", (picture.width, picture.height), picture.rgb)
    small = image.resize((width, max(1, round(picture.height * width / picture.width))), Image.Resampling.BOX)
    out = io.BytesIO()
    small.save(out, "JPEG", quality=85)
    return out.getvalue()
