"""A process that takes one erase job, as a labeling worker would, and dies where its settings say."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from engine.adapters.label_studio.client import LabelStudioBridge
from engine.jobs import failpoints
from engine.jobs.perform import perform
from engine.stages.erase import erase
from services.settings import Settings
from services.wiring import opened

settings = Settings()
failpoints.arm(settings.failpoints)


class Closed:
    """No label tool."""

    def close(self) -> None:
        return None


def bridge() -> Any:
    if settings.label_studio_url is None or settings.label_studio_token is None:
        return Closed()
    # Tests' projects are told apart by a prefix, which comes where a real worker has the user's address.
    return LabelStudioBridge(
        settings.label_studio_url, settings.label_studio_token.get_secret_value(), settings.label_studio_email
    )


with opened(settings) as wiring, closing(bridge()) as tool:
    perform(
        wiring.database,
        "erase",
        "one that dies",
        lambda lease: erase(wiring.database, wiring.blobs, tool, wiring.copies, lease, settled_s=0.0),
    )
