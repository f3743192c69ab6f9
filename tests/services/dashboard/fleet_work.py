"""A campaign's queue in every state, and jobs in every state."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from engine.store.tables.labels import Campaign, LabelTask, QueueItem, Selection
from engine.store.tables.metadata import new_id
from engine.store.tables.recordings import Frame
from engine.store.tables.work import Job
from tests.services.dashboard.fleet_making import NOW, WANTED, Making, ago
from tests.services.dashboard.fleet_pictures import picture, png


def queue(making: Making) -> None:
    campaign = making.add(
        Campaign(
            id=new_id(),
            name="night lanes",
            line_id=making.line.id,
            state="active",
            triggers=[{"name": "hard_brake", "parameters": {}}],
            trigger_sha256="t" * 64,
            heads=WANTED,
            budget=60,
            spent=0,
            batch_size=20,
            control_fraction=0.1,
            priority=5,
            seed=1,
            settings={},
            **making.own,
        )
    )
    making.fleet.campaign_id = campaign.id
    selection = making.add(
        Selection(
            id=new_id(),
            campaign_id=campaign.id,
            model_version_id=making.fleet.model_ids[3],
            pool_size=412,
            candidates=400,
            seed=99,
            **making.own,
        )
    )
    scored = [subject for subject in making.subjects if subject[0].state == "scored"]
    states = ["queued"] * 9 + ["open", "open", "labelled", "labelled", "labelled", "dropped"]
    for rank, ((clip, identity, seed, at), state) in enumerate(zip(scored[::3], states, strict=False)):
        control = rank in (0, 9)
        task = None
        if state in ("open", "labelled"):
            task = making.add(
                LabelTask(
                    id=new_id(),
                    subject_id=identity,
                    ontology_id=making.ontology_id,
                    slot=0,
                    heads=WANTED,
                    blind=control,
                    model_version_id=making.fleet.model_ids[3],
                    state="open" if state == "open" else "done",
                    tool_project=1,
                    tool_task=100 + rank,
                    **making.own,
                )
            )
            frame = making.session.get_one(Frame, identity)
            frame.picture_blob_id = making.blob(
                png(picture(seed, at, clip.tags["time_of_day"] == "night")), "image/png"
            )
        head = max(WANTED, key=lambda name: making.quantiles[identity, name])
        reason: dict[str, Any] = {
            "head": head,
            "quantile": making.quantiles[identity, head],
            "uncertainty_rank": rank,
            "distance": (0.95, 0.42, 0.2)[rank % 3],
            "triggers": [{"name": "hard_brake", "parameters": {"window_s": 2}, "hash": "t"}] if rank % 5 == 2 else [],
        }
        if control:
            reason = {"seed": 99, "pool_size": 412, "control_fraction": 0.1, "drawn": 2}
        item = making.add(
            QueueItem(
                id=new_id(),
                campaign_id=campaign.id,
                selection_id=selection.id,
                subject_id=identity,
                ontology_id=making.ontology_id,
                model_version_id=making.fleet.model_ids[3],
                trigger_sha256="t" * 64,
                arm="control" if control else "chosen",
                inclusion_probability=0.0083 if control else None,
                seed=99,
                reason=reason,
                heads=WANTED,
                priority=5 - rank / 21,
                state=state,
                task_id=task.id if task else None,
                created_at=ago(0.3),
                **making.own,
            )
        )
        making.fleet.item_ids.append(item.id)
        campaign.spent += state != "dropped"
    making.session.flush()


def jobs(making: Making) -> None:
    clip = making.fleet.clip_ids[0]
    error = 'Traceback (most recent call last):\n  File "score.py", line 9\nMediaRejected: the media gave 4 frames of 6'
    for kind, state, number in (
        ("score", "done", 14),
        ("score", "due", 3),
        ("score", "dead", 1),
        ("train", "leased", 1),
        ("accept", "done", 6),
    ):
        for index in range(number):
            job = Job(
                id=new_id(),
                kind=kind,
                subject_id=clip,
                dedupe_key=f"{kind}:{state}:{index}:{clip}",
                payload={},
                state=state,
                resource_class="gpu",
                attempt=0 if state == "due" else 3 if state == "dead" else 1,
                max_attempts=3,
                created_at=ago(0.5),
                run_after=NOW + timedelta(minutes=1),
                started_at=None if state == "due" else ago(0.4),
                finished_at=ago(0.39995) if state in ("done", "dead") else None,
                last_error=error if state == "dead" else None,
                lease_token=uuid.uuid4() if state == "leased" else None,
                lease_owner="retraining@box" if state == "leased" else None,
                lease_until=NOW + timedelta(minutes=5) if state == "leased" else None,
                **making.own,
            )
            making.add(job)
            if state == "dead":
                making.fleet.dead_job_id = job.id
