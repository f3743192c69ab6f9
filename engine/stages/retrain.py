"""Retrain: freeze what is labelled now and start a run on it, and repeats under other seeds that measure the noise."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from engine.domain.refusals import Invalid
from engine.jobs import ledger
from engine.ports import BlobStore, FrameReader
from engine.stages.freeze import Frozen, freeze_dataset
from engine.stages.train import RunRequest, start_run
from engine.store.lines import get_line, ontology_of
from engine.store.tables.metadata import new_id
from engine.store.tables.models import ModelLine, Run
from engine.store.unit_of_work import Database, UnitOfWork


def request(
    unit: UnitOfWork,
    line_id: uuid.UUID,
    *,
    target_heads: Sequence[str],
    start: str = "warm",
    seed: int | None = None,
    noise_seeds: Sequence[int] = (),
    overrides: Mapping[str, Any] | None = None,
) -> uuid.UUID:
    """Make a retraining of the line due. `target_heads` are declared here, before anything is trained.

    `noise_seeds`: the same training again under each of these, to measure how far seeds alone move the metrics.
    Raises OntologyError for a head that the line does not have, Invalid for another start than "warm" or "scratch".
    """
    line = get_line(unit.session, line_id, lock=True)
    payload = checked(
        unit.session,
        line,
        target_heads=target_heads,
        start=start,
        seed=seed,
        noise_seeds=noise_seeds,
        overrides=overrides,
    )
    job = enqueue(unit, line, f"freeze:{line_id}:{new_id()}", payload)
    assert job is not None  # the dedupe key is new
    return job


def checked(
    session: Session,
    line: ModelLine,
    *,
    target_heads: Sequence[str],
    start: str,
    seed: int | None = None,
    noise_seeds: Sequence[int] = (),
    overrides: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What a freeze job of the line is told, once it is found to be possible. Raises as `request` does."""
    ontology = ontology_of(session, line.ontology_id)
    for head in target_heads:
        ontology.head(head)
    if start not in ("warm", "scratch"):
        raise Invalid("unknown-start", f"start is {start!r}", "say 'warm' (from the champion) or 'scratch'")
    return {
        "target_heads": list(target_heads),
        "start": start,
        "seed": seed,
        "noise_seeds": list(noise_seeds),
        "overrides": dict(overrides or {}),
    }


def enqueue(unit: UnitOfWork, line: ModelLine, dedupe_key: str, payload: Mapping[str, Any]) -> uuid.UUID | None:
    """Make a freeze job due, with what `checked` gave; None where there is one under this key.

    The caller holds the line's row, so that whoever looks whether the line is busy, holding it too, sees this job.
    """
    return ledger.enqueue(
        unit,
        kind="freeze",
        project_id=line.project_id,
        subject_id=line.id,
        dedupe_key=dedupe_key,
        payload=payload,
    )


def retrain(
    database: Database, blobs: BlobStore, reader: FrameReader, lease: ledger.Lease
) -> tuple[Frozen, list[uuid.UUID]]:
    """Work a freeze job: the dataset version and the runs that were started on it.

    Raises NothingToFreeze, LeaseLost.
    """
    frozen = freeze_dataset(database, blobs, reader, lease.subject_id, lease)
    payload = lease.payload
    with database.unit() as unit:
        ledger.complete(unit, lease)
        before = unit.session.scalar(select(func.count()).select_from(Run).where(Run.line_id == lease.subject_id)) or 0
        seeds = [(payload["seed"] if payload["seed"] is not None else before, "challenger")]
        seeds += [(seed, "noise") for seed in payload["noise_seeds"]]
        runs = [
            start_run(
                unit,
                RunRequest(
                    line_id=lease.subject_id,
                    dataset_version_id=frozen.id,
                    seed=seed,
                    target_heads=payload["target_heads"],
                    start=payload["start"],
                    purpose=purpose,
                    overrides=payload["overrides"],
                    freeze_job_id=lease.job_id,
                ),
            )
            for seed, purpose in seeds
        ]
        unit.commit()
    return frozen, runs
