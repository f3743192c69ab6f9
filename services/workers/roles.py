"""What the four workers share: wiring opened once, and refusals that no retry would change made final."""

from __future__ import annotations

from collections.abc import Callable

from engine.domain.refusals import Refused
from engine.jobs.ledger import Lease
from engine.jobs.perform import Work, WorkPostponed, WorkRefused
from engine.ports import ScorerUnavailable

AWAY_S = 60.0
"""How long a scorer elsewhere that is away is left alone."""


def final(work: Callable[[Lease], object]) -> Work:
    """`work`, with a refusal ending its job at once: the same input would be refused again. While a scorer elsewhere is
    away, its work waits, and no attempt is counted."""

    def working(lease: Lease) -> object:
        try:
            return work(lease)
        except Refused as refused:
            raise WorkRefused(f"{refused.detail}: {refused.hint}") from refused
        except ScorerUnavailable as away:
            raise WorkPostponed(str(away), AWAY_S) from away

    return working
