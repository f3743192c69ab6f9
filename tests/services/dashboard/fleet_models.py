"""A line's labels, dataset versions, runs and model versions."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

from engine.store.tables.labels import DatasetLabel, DatasetSubject, DatasetVersion, Label
from engine.store.tables.metadata import new_id
from engine.store.tables.models import ModelVersion, Run
from tests.services.dashboard.fleet_making import HEADS, Making, ago


def models(making: Making) -> None:
    """Five versions: two noise repeats would be as these; the last was made elsewhere."""
    labels = [
        making.add(
            Label(
                id=new_id(),
                subject_id=identity,
                ontology_id=making.ontology_id,
                head=head,
                revision=1,
                source="sensor" if head == "depth" else "human",
                value={},
                annotation_ids=[],
                content_sha256="0" * 64,
                created_by="test",
                **making.own,
            )
        )
        for _, identity, _, at in making.subjects
        for head in HEADS
        if at < 2
    ]
    initial = None
    for number in range(1, 6):
        part = labels[: len(labels) * min(number, 4) // 4]
        dataset = _dataset(making, number, part) if number < 5 else None
        run = dataset and _run(making, number, dataset, initial)
        model = making.add(
            ModelVersion(
                id=new_id(),
                line_id=making.line.id,
                number=number,
                origin="trained" if run else "registered",
                run_id=run.id if run else None,
                ontology_id=making.ontology_id,
                heads=HEADS,
                weights_sha256=hashlib.sha256(f"w{number}".encode()).hexdigest(),
                note=None if run else "made elsewhere, trained on shuffled labels",
                created_by=f"run {run.id}" if run else "token:admin",
                created_at=ago(5.4 - number),
                **making.own,
            )
        )
        making.fleet.model_ids.append(model.id)
        initial = model.id
    making.line.champion_id = making.line.selection_model_id = making.fleet.model_ids[3]
    running = Run(**_run_values(making, making.fleet.dataset_ids[-1], making.fleet.model_ids[3], 5), state="running")
    running.progress = {"step": 70, "steps": 120, "losses": {head: 0.4 for head in HEADS}}
    running.metrics = {}
    running.started_at = ago(0.02)
    making.fleet.run_ids.append(making.add(running).id)


def _dataset(making: Making, number: int, labels: list[Label]) -> DatasetVersion:
    subjects = {label.subject_id for label in labels}
    sources = {s: sum(label.source == s for label in labels) for s in ("human", "sensor")}
    dataset = making.add(
        DatasetVersion(
            id=new_id(),
            line_id=making.line.id,
            number=number,
            ontology_id=making.ontology_id,
            content_sha256=hashlib.sha256(f"d{number}".encode()).hexdigest(),
            header={},
            manifest_blob_id=making.blob(b"manifest %d" % number, "application/vnd.apache.parquet"),
            counts={
                "subjects": len(subjects),
                "labels": len(labels),
                "split_groups": len(subjects) // 2,
                "heads": {head: sum(label.head == head for label in labels) for head in HEADS},
                "sources": sources,
            },
            created_at=ago(5.6 - number),
            **making.own,
        )
    )
    for subject in subjects:
        making.session.add(
            DatasetSubject(dataset_version_id=dataset.id, subject_id=subject, split="pool", **making.own)
        )
    for label in labels:
        making.session.add(DatasetLabel(dataset_version_id=dataset.id, label_id=label.id, **making.own))
    making.session.flush()
    making.fleet.dataset_ids.append(dataset.id)
    return dataset


def _run_values(making: Making, dataset_id: uuid.UUID, initial: uuid.UUID | None, seed: int) -> dict[str, Any]:
    return {
        "id": new_id(),
        "line_id": making.line.id,
        "dataset_version_id": dataset_id,
        "purpose": "challenger",
        "trainer": "hydranet",
        "start": "warm" if initial else "scratch",
        "initial_model_id": initial,
        "sampling": {},
        "seed": seed,
        "target_heads": ["lanes"],
        "plan": {"backbone": "mobilenet_v3_small", "steps": 120, "batch_size": 8, "width": 192, "height": 96},
        **making.own,
    }


def _run(making: Making, number: int, dataset: DatasetVersion, initial: uuid.UUID | None) -> Run:
    run = making.add(
        Run(
            **_run_values(making, dataset.id, initial, number),
            state="finished",
            progress={"step": 120, "steps": 120, "losses": {}},
            metrics={
                "losses_at_start": {head: 1.2 + n * 0.2 for n, head in enumerate(HEADS)},
                "losses": {head: 0.3 + n * 0.05 for n, head in enumerate(HEADS)},
            },
            created_at=ago(5.5 - number),
            started_at=ago(5.5 - number),
            finished_at=ago(5.42 - number),
        )
    )
    making.fleet.run_ids.append(run.id)
    return run
