"""The loop's stages with what waits, is worked on and is done at each, from the overview's counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.dashboard.rendering import count, plural


@dataclass(frozen=True)
class StageView:
    """One station of the loop. `done` counts `noun`; `note` says what the numbers alone don't; `dead` are jobs."""

    name: str
    does: str
    address: str
    noun: str
    done: int
    waiting: int = 0
    working: int = 0
    dead: int = 0
    note: str = ""

    @property
    def mood(self) -> str:
        """What its colour says: something died, it works, it waits, or it rests."""
        if self.dead:
            return "dead"
        return "working" if self.working else "waiting" if self.waiting else "idle"


def stages(seen: Mapping[str, Any], promotions: int) -> list[StageView]:
    """In the order in which a clip goes through them."""
    clips, queue, runs, gate = seen["clips"], seen["queue"], seen["runs"], seen["gate"]
    jobs = {job["kind"]: job["states"] for job in seen["jobs"]}
    left = sum(c["budget"] - c["spent"] for c in seen["campaigns"] if c["state"] == "active")
    control = seen["arms"].get("control", 0)
    golden = seen["golden_clips"] or 0
    refused = runs.get("refused", 0)
    return [
        StageView(
            "ingest",
            "clips arrive",
            "/clips",
            "clip",
            sum(clips.values()),
            waiting=clips.get("offered", 0) + clips.get("requested", 0),
            note=f"{count(golden)} golden" if golden else "",
        ),
        StageView(
            "score",
            "the champion looks",
            "/clips?state=scored",
            "clip",
            clips.get("scored", 0),
            **_jobs(jobs, "score"),
            note=plural(seen["frames"] or 0, "frame"),
        ),
        StageView(
            "select",
            "the unsure are chosen",
            "/queue",
            "frame",
            sum(queue.values()),
            **_jobs(jobs, "select"),
            note=f"{count(control)} control, {count(left)} of budget left",
        ),
        StageView(
            "label",
            "people draw",
            "/queue?state=open",
            "frame",
            queue.get("labelled", 0),
            waiting=queue.get("queued", 0),
            working=queue.get("open", 0),
            dead=_jobs(jobs, "push")["dead"],
            note=f"{count(queue['dropped'])} dropped" if queue.get("dropped") else "",
        ),
        StageView(
            "accept",
            "answers become labels",
            "/datasets",
            "label",
            sum(seen["labels"].values()),
            **_jobs(jobs, "collect", "accept"),
            note=", ".join(f"{count(number)} {source}" for source, number in seen["label_sources"].items()),
        ),
        StageView("freeze", "labels become a dataset", "/datasets", "dataset", seen["datasets"] or 0),
        StageView(
            "train",
            "a challenger learns",
            "/runs",
            "run",
            runs.get("finished", 0),
            waiting=runs.get("due", 0),
            working=runs.get("running", 0),
            dead=_jobs(jobs, "train")["dead"],
            note=f"{count(refused)} refused" if refused else "",
        ),
        StageView(
            "judge",
            "the gate compares",
            "/gate-reports",
            "report",
            sum(gate.values()),
            **_jobs(jobs, "judge"),
            note=f"{count(gate.get('passed', 0))} passed, {count(gate.get('refused', 0))} refused" if gate else "",
        ),
        StageView("promote", "the better one takes over", "/models", "promotion", promotions, **_jobs(jobs, "promote")),
    ]


def _jobs(jobs: Mapping[str, Mapping[str, int]], *kinds: str) -> dict[str, Any]:
    def sum_of(state: str) -> int:
        return sum(jobs.get(kind, {}).get(state, 0) for kind in kinds)

    return {"waiting": sum_of("due"), "working": sum_of("leased"), "dead": sum_of("dead")}
