"""Whether this process lives, and whether it can do its work. The only routes that are open."""

from __future__ import annotations

import secrets

from fastapi import APIRouter
from pydantic import BaseModel
from sqlalchemy import text

from services.api.deps import Wired
from services.api.errors import HttpRefusal

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """All is well."""

    status: str = "ok"


@router.get("/healthz", response_model=Health, summary="The process lives")
def healthz() -> Health:
    return Health()


@router.get("/readyz", response_model=Health, summary="The database answers and blobs can be written")
def readyz(wiring: Wired) -> Health:
    """503 as a problem where something is missing."""
    with wiring.database.read() as session:
        session.execute(text("SELECT 1 FROM clips LIMIT 1"))
    try:
        with wiring.blobs.begin() as writer:
            writer.write(secrets.token_bytes(16))
            writer.path.stat()
    except OSError as error:
        raise HttpRefusal(
            503, "blobs-unavailable", f"blobs can't be written: {error}", "check the disk and LONGTAIL_BLOB_ROOT"
        ) from error
    return Health()
