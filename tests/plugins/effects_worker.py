"""A worker of the queue "labeling" for tests, run as a program: its jobs take the seconds that their payload says, and
then record one row each. All else is what every role does."""

from __future__ import annotations

import logging
import sys
import time

from sqlalchemy import text

from engine.jobs import failpoints, ledger
from engine.jobs.ledger import Lease
from services.settings import Settings
from services.workers.app import open_database, run_worker


def main() -> int:
    settings = Settings()
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(threadName)s %(name)s %(message)s")
    database = open_database(settings)

    def work(lease: Lease) -> None:
        deadline = time.monotonic() + lease.payload["seconds"]
        while time.monotonic() < deadline:
            time.sleep(0.05)
            if lease.kind == "collect":  # "accept" learns of a lost lease at its record only
                ledger.heartbeat(database, lease)
        with database.unit() as unit:
            unit.session.execute(text("INSERT INTO effects (job_id) VALUES (:id)"), {"id": lease.job_id})
            ledger.complete(unit, lease)
            failpoints.hit("effects.before_commit")
            unit.commit()
        failpoints.hit("effects.after_commit")

    return run_worker("labeling", settings, {"collect": work, "accept": work}, database)


if __name__ == "__main__":
    sys.exit(main())
