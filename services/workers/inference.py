"""The inference worker: scores clips with the production model. One process a GPU."""

from __future__ import annotations

from engine.stages.score import score
from services.settings import Settings
from services.wiring import opened
from services.workers.app import run_worker
from services.workers.roles import final
from services.workers.scorers import scorer_of


def run(settings: Settings) -> int:
    """Work until told to stop; returns the exit code."""
    with opened(settings) as wiring:
        scorer = scorer_of(wiring)
        return run_worker(
            "inference",
            settings,
            {"score": final(lambda lease: score(wiring.database, wiring.blobs, wiring.reader, scorer, lease))},
            wiring.database,
        )
