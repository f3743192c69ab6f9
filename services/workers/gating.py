"""The gate's worker: freezes what is to be trained on, judges what was trained, and moves the champion."""

from __future__ import annotations

from engine.jobs.ledger import Lease
from engine.stages.judge import judge
from engine.stages.promote import promote
from engine.stages.retrain import retrain
from services.settings import Settings
from services.wiring import opened
from services.workers.app import run_worker
from services.workers.roles import final
from services.workers.scorers import scorer_of


def run(settings: Settings) -> int:
    """Work until told to stop; returns the exit code."""
    with opened(settings) as wiring:
        scorer = scorer_of(wiring)
        database, blobs, reader = wiring.database, wiring.blobs, wiring.reader

        def promote_report(lease: Lease) -> object:
            return promote(database, lease.subject_id, str(lease.payload.get("actor", "gate")), lease)

        handlers = {
            "freeze": final(lambda lease: retrain(database, blobs, reader, lease)),
            "judge": final(lambda lease: judge(database, blobs, reader, scorer, lease)),
            "promote": final(promote_report),
        }
        return run_worker("gating", settings, handlers, database)
