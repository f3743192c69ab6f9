"""Claims jobs and does them, with their leases kept alive meanwhile: the one way in which work is done."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from engine.jobs import ledger
from engine.jobs.ledger import Lease, LeaseLost
from engine.store.unit_of_work import Database

Work = Callable[[Lease], object]
"""Does one job: works with no transaction open, then records in a short unit that calls `ledger.complete` before its
commit. A handler that has nothing to record may just return: the job is then completed for it."""

log = logging.getLogger(__name__)


class WorkRefused(Exception):
    """Doing it again won't help: the job is dead at once, with this as its error."""


class WorkPostponed(Exception):
    """What the job needs isn't there now: due again in `delay_s` seconds, and the attempt is not counted."""

    def __init__(self, reason: str, delay_s: float) -> None:
        super().__init__(reason)
        self.delay_s = delay_s


def perform(
    database: Database,
    kind: str,
    owner: str,
    work: Work,
    limit: int = 1,
    *,
    lease_s: float | None = None,
    release: Callable[[], bool] | None = None,
) -> int:
    """Claim up to `limit` due jobs of a kind and do them one after another; returns how many were claimed.

    A job whose work raises is failed with the exception's text (WorkRefused and WorkPostponed say how); one whose lease
    was lost writes nothing. Once `release` says so (it is asked twice a second), whatever is held is given back
    unharmed, so that another worker goes on with it at once: the work under way learns it as LeaseLost from its next
    heartbeat. Raises only what the claim itself raises.
    """
    leases = ledger.claim(database, kind, owner, limit, lease_s=lease_s)
    if leases:
        with _kept_alive(database, leases, release) as held:
            for lease in leases:
                if lease.job_id in held:
                    _do(database, lease, work)
                    held.pop(lease.job_id, None)
    return len(leases)


def _do(database: Database, lease: Lease, work: Work) -> None:
    name = f"{lease.kind} job {lease.job_id}, attempt {lease.attempt} of {lease.max_attempts}"
    try:
        try:
            work(lease)
        except LeaseLost:
            raise
        except WorkPostponed as error:
            log.info("%s: postponed by %.0f s: %s", name, error.delay_s, error)
            ledger.postpone(database, lease, str(error), error.delay_s)
        except WorkRefused as error:
            log.error("%s: refused: %s", name, error)
            ledger.fail(database, lease, str(error), retry=False)
        except Exception as error:
            log.exception("%s: failed", name)
            ledger.fail(database, lease, f"{type(error).__name__}: {error}")
        else:
            _complete_unless_done(database, lease)
    except LeaseLost:
        log.warning("%s: lost its lease, nothing was written", name)
    except SQLAlchemyError:
        log.exception("%s: can't be settled, its lease will run out", name)


def _complete_unless_done(database: Database, lease: Lease) -> None:
    with database.unit() as unit:
        try:
            ledger.complete(unit, lease)
        except LeaseLost:
            return  # the usual case: the handler completed it with its record
        unit.commit()


@contextmanager
def _kept_alive(
    database: Database, leases: list[Lease], release: Callable[[], bool] | None
) -> Iterator[dict[object, Lease]]:
    """Renews these leases from a thread of its own; yields those still held, from which a lost one disappears."""
    held: dict[object, Lease] = {lease.job_id: lease for lease in leases}
    finished = threading.Event()
    thread = threading.Thread(
        target=_keep_alive, args=(database, held, finished, release), name="lease-heartbeat", daemon=True
    )
    thread.start()
    try:
        yield held
    finally:
        finished.set()
        thread.join()


def _keep_alive(
    database: Database, held: dict[object, Lease], finished: threading.Event, release: Callable[[], bool] | None
) -> None:
    every_s = min(lease.lease_s for lease in held.values()) / 3
    due = time.monotonic() + every_s
    while not finished.wait(min(every_s, 0.5)):
        released = release is not None and release()
        if not released and time.monotonic() < due:
            continue
        due = time.monotonic() + every_s
        for lease in list(held.values()):
            try:
                if released:
                    ledger.postpone(database, lease, "its worker was told to stop", 0)
                    held.pop(lease.job_id, None)
                else:
                    ledger.heartbeat(database, lease)
            except LeaseLost:
                held.pop(lease.job_id, None)
            except SQLAlchemyError as error:
                log.warning("lease of %s job %s can't be renewed now: %s", lease.kind, lease.job_id, error)
