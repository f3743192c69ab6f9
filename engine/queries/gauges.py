"""How much there is of everything that an operator watches."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from engine.queries import jobs
from engine.store.tables.labels import Label, LabelTask, QueueItem
from engine.store.tables.models import ModelLine, ModelVersion
from engine.store.tables.recordings import Clip
from engine.store.tables.work import Job


@dataclass(frozen=True)
class Gauges:
    """Counts by label; ages in seconds."""

    jobs: list[tuple[str, str, int]]  # kind, state
    oldest_due_s: list[tuple[str, float]]  # kind
    clips: list[tuple[str, str, int]]  # state, split
    queue: list[tuple[str, str, int]]  # state, arm
    tasks: list[tuple[str, int]]  # state
    labels: list[tuple[str, str, int]]  # head, source
    champions: list[tuple[str, int]]  # line, number of its champion


def gauges(session: Session) -> Gauges:
    """Read in one transaction, so that the numbers fit each other."""
    waiting = func.extract("epoch", func.now() - func.min(Job.run_after))
    return Gauges(
        jobs=jobs.counts(session),
        oldest_due_s=[
            (kind, float(seconds))
            for kind, seconds in session.execute(
                select(Job.kind, waiting).where(Job.state == "due", Job.run_after <= func.now()).group_by(Job.kind)
            )
        ],
        clips=[
            (state, split, count)
            for state, split, count in session.execute(
                select(Clip.state, Clip.split, func.count()).group_by(Clip.state, Clip.split)
            )
        ],
        queue=[
            (state, arm, count)
            for state, arm, count in session.execute(
                select(QueueItem.state, QueueItem.arm, func.count()).group_by(QueueItem.state, QueueItem.arm)
            )
        ],
        tasks=[
            (state, count)
            for state, count in session.execute(select(LabelTask.state, func.count()).group_by(LabelTask.state))
        ],
        labels=[
            (head, source, count)
            for head, source, count in session.execute(
                select(Label.head, Label.source, func.count())
                .where(Label.superseded_by_id.is_(None))
                .group_by(Label.head, Label.source)
            )
        ],
        champions=[
            (name, number)
            for name, number in session.execute(
                select(ModelLine.name, ModelVersion.number).join(ModelVersion, ModelVersion.id == ModelLine.champion_id)
            )
        ],
    )
