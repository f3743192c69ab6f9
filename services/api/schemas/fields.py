"""Types of fields that more than one schema has, and that keep out what the database could not hold."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

NO_NUL = r"^[^\x00]*$"
Text = Annotated[str, StringConstraints(max_length=4096, pattern=NO_NUL)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""A name or external id: one line, not empty."""
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
TimeNs = Annotated[int, Field(ge=0, le=9_000_000_000_000_000_000)]
"""UTC, in nanoseconds since 1970; up to the year 2255."""
OffsetNs = Annotated[int, Field(ge=-86_400_000_000_000, le=86_400_000_000_000)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
Pixels = Annotated[int, Field(ge=1, le=65_535)]
Pts = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


def storable(document: dict[str, Any]) -> dict[str, Any]:
    """JSON that PostgreSQL takes: no NaN or infinity, no NUL, no half of a surrogate pair."""
    try:
        text = json.dumps(document, allow_nan=False, ensure_ascii=False)
        text.encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise ValueError("must be JSON without NaN, infinity or broken characters, and not nested too deep") from error
    if "\\u0000" in text:
        raise ValueError("must not hold the character NUL (\\u0000)")
    return document


JsonObject = Annotated[dict[str, Any], AfterValidator(storable)]


class Posted(BaseModel):
    """What a client sends. A field that we don't know is an error, so that a misspelt one is not silently lost."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)
