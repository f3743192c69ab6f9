"""What a line is busy with: one retraining at a time."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from sqlalchemy import String, exists, literal, select, union_all
from sqlalchemy.orm import Session

from engine.store.tables.models import Run
from engine.store.tables.work import Job


@dataclass(frozen=True)
class Busy:
    """A retraining under way, in words, and its run: none while the labels are still being frozen."""

    told: str
    run_id: uuid.UUID | None = None


def busy_with(session: Session, line_id: uuid.UUID) -> Busy | None:
    """The retraining of the line that is under way, or None.

    That is a freeze which is due or being worked on, or a run that is due or running. A run whose training has died or
    was cancelled is over, whatever its row says: nobody will go on with it.

    One statement, so that the moment in which a freeze ends and its runs begin can't fall between two looks.
    """
    freezing = select(literal("freeze", String).label("what"), Job.id, Job.state).where(
        Job.kind == "freeze", Job.subject_id == line_id, Job.state.in_(("due", "leased"))
    )
    given_up = exists().where(Job.kind == "train", Job.subject_id == Run.id, Job.state.in_(("dead", "cancelled")))
    training = select(literal("run", String).label("what"), Run.id, Run.state).where(
        Run.line_id == line_id, Run.state.in_(("due", "running")), ~given_up
    )
    rows = session.execute(union_all(freezing, training)).all()
    if not rows:
        return None
    what, row_id, state = min(rows, key=lambda row: (row.what != "freeze", row.state != "running", row.id))
    if what == "freeze":
        return Busy(f"labels are being frozen for a retraining of its line (job {row_id})")
    more = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
    return Busy(f"a run of its line is {state} ({row_id}{more})", row_id)
