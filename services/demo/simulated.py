"""`longtail demo`: the loop turns three times on a simulated fleet, on one machine, with nothing in it faked.

The seed is plain daylight and the fleet meets the long tail at its natural rate; the golden set holds more of it, so
that it can be measured. A model trained on shuffled labels is registered as made elsewhere, and the gate has to refuse
it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from services.demo import report, spoiled
from services.demo.credentials import Credentials, credentials
from services.demo.progress import Progress, Stage
from services.demo.turns import Loop, Turn, require_champion
from services.local.stack import LocalStack
from services.simulation.annotator import PERSONAS, Annotator, work_through
from services.simulation.drive import Drive, TruthBook, plan_drives
from services.simulation.fleet import Fleet, PostedClip, with_lidar
from services.simulation.sign_up import sign_up
from services.simulation.truth import driving_ontology
from services.wiring import Wiring

LINE = "driving"
HEADS = ("driveable", "lanes", "objects", "signs")
TARGETS = (("lanes",), ("objects",), ("lanes",))  # by turn: what has to get better
LABELERS = ("careful", "quick")
TRAINING: Mapping[str, Any] = {
    "backbone": "mobilenet_v3_small",
    "height": 96,
    "width": 192,
    "batch_size": 12,
    "learning_rate_scratch": 3e-3,
    "learning_rate_warm": 1.5e-3,
    "steps_scratch": 240,
    "steps_warm": 120,
    "checkpoint_every": 30,
    "threads": 1,
}


@dataclass(frozen=True)
class Scale:
    """How large a demo is: drives of each kind, frames a turn, and what the line's settings say."""

    seed_drives: int = 22
    golden_drives: int = 48
    turn_drives: int = 20
    golden_tail: str = "boosted"
    batch: int = 40
    noise_seeds: Sequence[int] = (101, 102)
    spoiled_steps: int = 60
    settings: Mapping[str, Any] = field(
        default_factory=lambda: {"training": dict(TRAINING), "scoring": {"every_s": 0.4}}
    )

    def drives(self, turn: int) -> list[Drive]:
        """What the fleet records in a turn; the seed's drives for turn 0."""
        if turn == 0:
            return plan_drives(1, self.seed_drives, "easy", clips=1, prefix="seed")
        return plan_drives(100 + turn, self.turn_drives, "natural", prefix="fleet")

    def golden(self) -> list[Drive]:
        return plan_drives(2, self.golden_drives, self.golden_tail, clips=1, split="golden", prefix="golden")


def run(stack: LocalStack, wiring: Wiring, console: Console, turns: int = 3, scale: Scale | None = None) -> int:
    """Turn the loop; 0 when a challenger has been promoted, now or in an earlier run, and the spoiled one was refused.

    Raises TurnFailed when it stops anywhere.
    """
    scale = scale or Scale()
    began = time.monotonic()
    progress = Progress(console)
    keys = credentials(wiring, "simulated-fleet")
    loop = Loop(wiring, progress, LINE)
    has_champion = loop.ensure_line(driving_ontology(), scale.settings)
    done: list[Turn] = []
    seed = Turn("seed")
    with Fleet(stack.state.api_url, keys.device_key, token=keys.token) as fleet:
        if has_champion:
            console.print("\n[bold]The loop goes on[/] from the champion that is there.")
        else:
            console.print("\n[bold]Seed[/]: daylight drives, labelled by the simulator; a golden set with the tail.")
            _seed(loop, fleet, seed, progress, scale)
            report.print_turn(console, seed)
            require_champion(seed)
        first = loop.turns_so_far() + 1
        for number in range(first, first + turns):
            turn = Turn(f"turn {number}")
            console.print(f"\n[bold]Turn {number}[/]")
            _turn(stack, loop, fleet, keys, turn, number, progress, scale)
            done.append(turn)
            report.print_turn(console, turn)
        console.print("\n[bold]A spoiled model[/]: trained on shuffled labels, registered as made elsewhere.")
        refused, _ = spoiled.try_it(stack, loop, keys, progress, TARGETS[0], scale.spoiled_steps)
    report.print_where(console, stack, "make up")
    report.last_line(done, refused, time.monotonic() - began, seed=seed.to_document() if seed.verdict else None)
    return 0 if refused and loop.promoted() else 1


def _seed(loop: Loop, fleet: Fleet, turn: Turn, progress: Progress, scale: Scale) -> None:
    with progress.stage(turn, "ingest", "the fleet sends seed and golden clips") as stage:
        posted = _post(fleet, [*scale.drives(0), *scale.golden()], stage)
    turn.clips = len(posted)
    with progress.stage(turn, "import", "labels of two frames of each") as stage:
        ontology = driving_ontology()
        for number, clip in enumerate(posted):
            pts = clip.plan.pts[:: max(1, len(clip.plan.pts) // 2)][:2]
            fleet.import_truth(clip, pts, ontology, [head.name for head in ontology.heads])
            stage.at(number + 1, len(posted))
    turn.labels = 2 * scale.seed_drives
    with progress.stage(turn, "golden", "freezing the golden set"):
        loop.freeze_golden("golden")
    loop.retrain(turn, [], start="scratch", seed=100, noise_seeds=scale.noise_seeds)


def _turn(
    stack: LocalStack,
    loop: Loop,
    fleet: Fleet,
    keys: Credentials,
    turn: Turn,
    number: int,
    progress: Progress,
    scale: Scale,
) -> None:
    with progress.stage(turn, "ingest", "the fleet sends what it recorded") as stage:
        posted = _post(fleet, scale.drives(number), stage)
    turn.clips = len(posted)
    with progress.stage(turn, "lidar", "depth from the vehicles that carry a lidar") as stage:
        carriers = with_lidar(posted, 0.4, seed=number)
        for count, clip in enumerate(carriers):
            fleet.import_depth(clip, clip.plan.pts[:1], driving_ontology())
            stage.at(count + 1, len(carriers))
    loop.wait_scored(turn)
    campaign = loop.choose(turn, HEADS, scale.batch, priority=number)
    seen = [drive for earlier in range(number + 1) for drive in scale.drives(earlier)]
    annotators = _annotators(stack, keys, seen, progress, turn)
    try:
        loop.label(turn, campaign, lambda project: work_through(annotators, project))
    finally:
        for annotator in annotators:
            annotator.close()
    loop.retrain(turn, TARGETS[(number - 1) % len(TARGETS)], seed=number)


def _post(fleet: Fleet, drives: Sequence[Drive], stage: Stage) -> list[PostedClip]:
    """Post every clip, in order."""
    total = sum(len(drive.clips) for drive in drives)
    posted = []
    for clip in fleet.post_drives(drives):
        posted.append(clip)
        stage.at(len(posted), total)
    return posted


def _annotators(
    stack: LocalStack, keys: Credentials, drives: Sequence[Drive], progress: Progress, turn: Turn
) -> list[Annotator]:
    """The labelers, each with an account of their own; Label Studio is waited for if it is still starting."""
    with progress.stage(turn, "tool", "Label Studio is ready"):
        stack.wait_for("label-studio")
    book = TruthBook(drives)
    state = stack.state
    tokens = [
        sign_up(state.label_studio_url, state.label_studio_token, f"{name}@labelers.example", keys.labeler_password)
        for name in LABELERS
    ]
    return [
        Annotator(state.label_studio_url, token, driving_ontology(), book.truth_for, PERSONAS[name], skip_unknown=True)
        for name, token in zip(LABELERS, tokens, strict=True)
    ]
