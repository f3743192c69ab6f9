"""What the four workers share: wiring opened once, and refusals that no retry would change made final."""

from __future__ import annotations

from collections.abc import Callable

from engine.domain.refusals import Refused
from engine.jobs.ledger import Lease
from engine.jobs.perform import Work, WorkRefused


def final(work: Callable[[Lease], object]) -> Work:
    """`work`, with a refusal ending its job at once: the same input would be refused again."""

    def working(lease: Lease) -> object:
        try:
            return work(lease)
        except Refused as refused:
            raise WorkRefused(f"{refused.detail}: {refused.hint}") from refused

    return working
