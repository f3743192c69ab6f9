"""Schedules in every state, and firings that came to something, to nothing, and to a dead end."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from engine.store.tables.metadata import new_id
from engine.store.tables.models import Run
from engine.store.tables.work import Job, Schedule, ScheduleFiring
from tests.services.dashboard.fleet_making import NOW, Making, ago


def schedules(making: Making) -> None:
    """The line is being trained all the time, so what is due waits."""
    weekly = _schedule(making, "weekly", cron="30 3 * * MON", time_zone="Europe/Berlin", due=timedelta(days=4))
    _firing(making, weekly, days=2.6, due=2.7, state="done", runs=[3])
    _firing(making, weekly, days=0.02, due=0.02, state="done", runs=[-1])
    _schedule(making, "overdue", cron="0 * * * *", time_zone="UTC", due=-timedelta(hours=3))
    fed = _schedule(making, "fed by labels", new_labels=500, counted=412, needed=500)
    _firing(making, fed, days=1.5, due=1.5, state="dead", new_labels=500, error="the picture can't be decoded")
    rested = _schedule(making, "rested", cron="0 0 1 * *", time_zone="UTC", due=timedelta(days=20), enabled=False)
    _firing(making, rested, days=0.9, due=0.9, skipped="paused: there is no time zone 'Moon'; name one of the IANA's")
    _firing(making, rested, days=0.8, due=0.8, state="due", asked_by="token:ada")


def _schedule(making: Making, name: str, *, due: timedelta = timedelta(seconds=30), **values: Any) -> Schedule:
    counted = {"counted_at": NOW - timedelta(seconds=12), "label_sources": ["human", "import"]}
    row: Schedule = making.add(
        Schedule(
            id=new_id(),
            name=name,
            job_kind="freeze",
            job_subject_id=making.line.id,
            job_payload={
                "target_heads": ["lanes", "objects"],
                "start": "warm",
                "seed": None,
                "noise_seeds": [],
                "overrides": {},
            },
            next_due=NOW + due,
            created_by="token:ada",
            **{"enabled": True, **(counted if "new_labels" in values else {}), **values},
            **making.own,
        )
    )
    making.fleet.schedule_ids[name] = row.id
    return row


def _firing(
    making: Making,
    schedule: Schedule,
    *,
    days: float,
    due: float,
    state: str | None = None,
    error: str | None = None,
    runs: list[int] | None = None,
    **values: Any,
) -> None:
    job_id = _job(making, state, days, error) if state else None
    for number in runs or []:
        making.session.get_one(Run, making.fleet.run_ids[number]).freeze_job_id = job_id
    making.add(
        ScheduleFiring(
            id=new_id(),
            schedule_id=schedule.id,
            due=ago(due),
            fired_at=ago(days),
            job_id=job_id,
            **values,
            **making.own,
        )
    )


def _job(making: Making, state: str, days: float, error: str | None) -> uuid.UUID:
    # Of another line: this one's own jobs are counted elsewhere.
    job: Job = making.add(
        Job(
            id=new_id(),
            kind="freeze",
            subject_id=new_id(),
            dedupe_key=f"freeze:{new_id()}",
            payload={},
            state=state,
            resource_class="cpu",
            attempt=1,
            max_attempts=6,
            created_at=ago(days),
            run_after=ago(days),
            last_error=error,
            **making.own,
        )
    )
    return job.id
