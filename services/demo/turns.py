"""What turning the loop consists of, one step a method, each waiting until the workers have done it.

A demo acts as its users would: clips and labels go in through the API, people label in Label Studio, and everything
between is done by the workers. It only asks for what a schedule or a person would ask for, and watches.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from engine.domain.ontology import Ontology
from engine.stages import freeze, retrain
from engine.stages.campaign import CampaignRequest, make_campaign, request_selection
from engine.stages.register import ensure_line
from engine.store.lines import add_ontology
from engine.store.projects import ensure_default
from engine.store.tables.labels import Campaign, DatasetVersion, QueueItem, ToolProject
from engine.store.tables.models import GateReport, ModelLine, ModelVersion, Promotion, Run
from engine.store.tables.recordings import Subject
from services.demo import watch
from services.demo.progress import Progress, Stage
from services.wiring import Wiring

POLL_S = 0.5
STALLED_S = 300  # without any progress, something is wrong


class TurnFailed(RuntimeError):
    """The loop did not turn; the message says where it stopped and what to look at."""


@dataclass
class Turn:
    """What one turn came to; `metrics` by head as in the gate's report."""

    name: str
    clips: int = 0
    frames: int = 0
    chosen: int = 0
    control: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    labels: int = 0
    skipped: int = 0
    dataset: int = 0
    challenger: int = 0
    champion: int | None = None
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    targets: list[str] = field(default_factory=list)
    scope: str = ""
    verdict: str = ""
    why: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        """As it stands in the demo's last line."""
        return {
            "clips": self.clips,
            "chosen": self.chosen + self.control,
            "labels": self.labels,
            "metrics": {
                head: {key: row[key] for key in ("champion", "challenger", "low", "high")}
                for head, row in self.metrics.items()
            },
            "verdict": self.verdict,
            "seconds": {stage: round(seconds, 1) for stage, seconds in self.seconds.items()},
        }


def require_champion(seed: Turn) -> None:
    """Raises TurnFailed where the gate refused the seed's model: without a champion nothing can be scored."""
    if seed.verdict != "passed":
        raise TurnFailed(f"there is no first champion, the gate refused it: {'; '.join(seed.why)}")


class Loop:
    """A model line and what turns it."""

    def __init__(self, wiring: Wiring, progress: Progress, line_name: str) -> None:
        self.wiring, self.progress = wiring, progress
        self.database = wiring.database
        self.line_name = line_name
        self.line_id = self.ontology_id = self.project_id = uuid.UUID(int=0)

    def ensure_line(self, ontology: Ontology, settings: Mapping[str, Any]) -> bool:
        """The line, made where there is none; True when it has a champion already."""
        with self.database.unit() as unit:
            session = unit.session
            self.project_id = ensure_default(session).id
            add_ontology(session, self.project_id, ontology)
            line = ensure_line(unit, self.project_id, self.line_name, ontology.name, ontology.version, settings, "demo")
            self.line_id, self.ontology_id = line.id, line.ontology_id
            champion = line.champion_id
            unit.commit()
        return champion is not None

    def freeze_golden(self, name: str) -> freeze.Frozen:
        """The golden set of all golden labels; the same labels are the same set."""
        return freeze.freeze_golden(self.database, self.wiring.blobs, self.wiring.reader, self.line_id, name)

    def promoted(self) -> int:
        """How many challengers have taken a champion's place in this line; the first champion took nobody's."""
        with self.database.read() as session:
            return (
                session.scalar(
                    select(func.count()).where(
                        Promotion.line_id == self.line_id,
                        Promotion.act == "promote",
                        Promotion.from_model_id.is_not(None),
                    )
                )
                or 0
            )

    def turns_so_far(self) -> int:
        """How many turns this line has seen: one campaign each."""
        with self.database.read() as session:
            return (
                session.scalar(select(func.count()).select_from(Campaign).where(Campaign.line_id == self.line_id)) or 0
            )

    # --- one turn -----------------------------------------------------------------------------------------------------

    def wait_scored(self, turn: Turn) -> None:
        """Until the champion has scored the whole pool."""
        with self.progress.stage(turn, "score", "the champion scores the pool") as stage:
            self._wait(stage, lambda s: watch.unscored(s, self.line_id), "score")
        with self.database.read() as session:
            turn.frames = (
                session.scalar(
                    select(func.count())
                    .select_from(Subject)
                    .where(Subject.project_id == self.project_id, Subject.split == "pool")
                )
                or 0
            )

    def choose(
        self, turn: Turn, heads: Sequence[str], batch: int, *, priority: int = 0, window_s: float = 0.6
    ) -> uuid.UUID:
        """Open the turn's campaign and let it choose its batch, frames of a drive at least `window_s` apart."""
        with self.progress.stage(turn, "select", f"choosing {batch} frames") as stage:
            with self.database.unit() as unit:
                campaign = make_campaign(
                    unit,
                    self.project_id,
                    CampaignRequest(
                        name=turn.name,
                        line=self.line_name,
                        heads=heads,
                        budget=batch,
                        batch_size=batch,
                        priority=priority,
                        settings={"window_s": window_s},
                    ),
                )
                request_selection(unit, self.project_id, campaign.id)
                unit.commit()
            self._wait(stage, lambda s: watch.open_jobs(s, "select", campaign.id), "select")
        with self.database.read() as session:
            items = session.scalars(select(QueueItem).where(QueueItem.campaign_id == campaign.id)).all()
        turn.control = sum(item.arm == "control" for item in items)
        turn.chosen = len(items) - turn.control
        turn.reasons = dict(Counter(item.reason["head"] for item in items if item.arm == "chosen").most_common())
        if not items:
            raise TurnFailed(f"{turn.name} chose nothing: the pool has no scored frame left that is worth labelling")
        return campaign.id

    def label(self, turn: Turn, campaign_id: uuid.UUID, work: Callable[[int], int]) -> None:
        """Let people label what was chosen; `work` does a tool project's open tasks and returns how many it did."""
        with self.progress.stage(turn, "label", "people label in Label Studio") as stage:
            started = moved = time.monotonic()
            total = before = turn.chosen + turn.control
            while True:
                with self.database.read() as session:
                    left = watch.unlabelled(session, campaign_id)
                    project = session.scalars(
                        select(ToolProject.tool_project).where(ToolProject.ontology_id == self.ontology_id)
                    ).one_or_none()
                    self._refuse_dead(session, started)
                stage.at(total - left, total)
                if not left:
                    break
                if left < before:
                    before, moved = left, time.monotonic()
                if time.monotonic() - moved > STALLED_S:
                    raise TurnFailed(
                        f"{left} of {total} chosen frames are not labelled, and none was for {STALLED_S} s"
                    )
                if project is None or not work(project):
                    time.sleep(POLL_S)
        with self.database.read() as session:
            turn.labels = (
                session.scalar(
                    select(func.count())
                    .select_from(QueueItem)
                    .where(QueueItem.campaign_id == campaign_id, QueueItem.state == "labelled")
                )
                or 0
            )
            turn.skipped = total - turn.labels

    def retrain(
        self,
        turn: Turn,
        targets: Sequence[str],
        *,
        start: str = "warm",
        seed: int = 0,
        noise_seeds: Sequence[int] = (),
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        """Freeze, train, judge, and promote if the gate says so."""
        turn.targets = list(targets)
        with self.database.unit() as unit:
            job = retrain.request(
                unit,
                self.line_id,
                target_heads=targets,
                start=start,
                seed=seed,
                noise_seeds=noise_seeds,
                overrides=overrides,
            )
            champion = unit.session.get_one(ModelLine, self.line_id).champion_id
            turn.champion = unit.session.get_one(ModelVersion, champion).number if champion else None
            unit.commit()
        with self.progress.stage(turn, "freeze", "freezing a dataset version") as stage:
            self._wait(stage, lambda s: watch.open_job(s, job), "freeze")
        with self.database.read() as session:
            run = session.scalars(
                select(Run)
                .where(Run.line_id == self.line_id, Run.purpose == "challenger")
                .order_by(Run.id.desc())
                .limit(1)
            ).one()
            turn.dataset = session.get_one(DatasetVersion, run.dataset_version_id).number
        with self.progress.stage(turn, "train", f"training on dataset version {turn.dataset}") as stage:
            self._wait(stage, lambda s: watch.untrained(s, run.id), "train")
        with self.database.read() as session:
            run = session.get_one(Run, run.id)
            if run.state != "finished" or run.started_at is None or run.finished_at is None:
                raise TurnFailed(f"the run was {run.state}: {run.failure}")
            # What it took, apart from what it waited for: one trainer does one run after the other.
            waited, trained = turn.seconds["train"], (run.finished_at - run.started_at).total_seconds()
            turn.seconds |= {"wait": max(0.0, waited - trained), "train": trained}
            model = session.scalars(select(ModelVersion).where(ModelVersion.run_id == run.id)).one()
        turn.challenger = model.number
        self.wait_judged(turn, model.id)

    def wait_judged(self, turn: Turn, model_id: uuid.UUID) -> None:
        """Until the gate has a report on the model, and the champion was moved if it passed."""
        with self.progress.stage(turn, "judge", "the gate compares on the golden set") as stage:
            self._wait(stage, lambda s: 0 if watch.newest_report(s, model_id) else 1, "judge")
        with self.database.read() as session:
            report = watch.newest_report(session, model_id)
        assert report is not None
        _read_report(turn, report)
        if report.verdict == "passed":
            with self.progress.stage(turn, "promote", "moving the champion") as stage:
                self._wait(stage, lambda s: watch.open_jobs(s, "promote", report.id), "promote")
            with self.database.read() as session:
                moved = session.scalar(select(func.count()).where(Promotion.gate_report_id == report.id))
            if not moved:
                raise TurnFailed("the gate passed the challenger, and the champion was not moved: see `longtail jobs`")

    # --- watching -----------------------------------------------------------------------------------------------------

    def _wait(self, stage: Stage, left: Callable[[Session], int], kind: str) -> None:
        """Until nothing is left. Raises TurnFailed when that many seconds pass in which nothing came of it."""
        started = moved = time.monotonic()
        most = before = 0
        while True:
            with self.database.read() as session:
                now = left(session)
                self._refuse_dead(session, started)
            most = max(most, now)
            stage.at(most - now, most)
            if not now:
                return
            if now != before:
                before, moved = now, time.monotonic()
            if time.monotonic() - moved > STALLED_S:
                raise TurnFailed(f"nothing came of {kind} for {STALLED_S} s: see `longtail jobs list`, and the logs")
            time.sleep(POLL_S)

    def _refuse_dead(self, session: Session, started: float) -> None:
        dead = watch.died_since(session, self.project_id, time.monotonic() - started + 5)
        if dead is not None:
            raise TurnFailed(f"a {dead.kind} job died after {dead.attempt} attempts: {dead.last_error}")


def _read_report(turn: Turn, report: GateReport) -> None:
    turn.verdict, turn.why, turn.scope = report.verdict, list(report.reasons), report.report["scope"]
    turn.metrics = {
        row["head"]: {
            "champion": row["reference"] if row["reference_name"] == "champion" else None,
            "reference": row["reference"],
            "reference_name": row["reference_name"],
            "challenger": row["challenger"],
            "low": row["low"],
            "high": row["high"],
            "rule": row["rule"],
            "bound": row["bound"],
            "metric": row["metric"],
        }
        for row in report.report["rows"]
        if row["slice"] is None
    }
