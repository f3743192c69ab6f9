"""The demo as a user runs it, small: every server real, labels through Label Studio, one turn, and then one more."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from sqlalchemy import func, select

from engine.store.tables.labels import Annotation, Label, LabelTask
from engine.store.tables.models import GateReport, ModelVersion
from services.demo import simulated
from services.demo.simulated import Scale
from services.local.stack import LocalStack, start_local
from services.settings import Settings
from services.wiring import Wiring, opened

# The seed is trained as in the demo itself: with less, the gate would rightly refuse it. Its noise is not measured, so
# that no challenger passes, and each turn still comes to a verdict.
SMALL = Scale(
    seed_drives=16,
    golden_drives=14,
    golden_tail="easy",
    turn_drives=4,
    batch=6,
    noise_seeds=(),
    spoiled_steps=20,
    settings={
        "training": {**simulated.TRAINING, "learning_rate_scratch": 4e-3, "steps_warm": 10},
        "scoring": {"every_s": 0.4},
        "gate": {"min_groups": 8, "resamples": 400},
    },
)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalStack, Wiring]]:
    settings = Settings(data_dir=tmp_path_factory.mktemp("demo"), api_port=0, label_studio_port=0)
    with start_local(settings, later=("label-studio",)) as stack, opened(stack.settings) as wiring:
        yield stack, wiring


def turn(machine: tuple[LocalStack, Wiring]) -> tuple[int, str]:
    stack, wiring = machine
    shown = io.StringIO()
    code = simulated.run(stack, wiring, Console(file=shown, width=140), turns=1, scale=SMALL)
    return code, shown.getvalue()


@pytest.mark.slow
@pytest.mark.label_studio
@pytest.mark.timeout(900)
def test_the_loop_turns_and_goes_on_where_it_was(
    machine: tuple[LocalStack, Wiring], capsys: pytest.CaptureFixture[str]
) -> None:
    stack, wiring = machine
    code, shown = turn(machine)
    first = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert first["seed"]["verdict"] == "passed", shown
    assert first["spoiled_refused"] is True, shown
    assert (code, first["promoted"]) == (1, 0), shown  # nothing was measured that a challenger could have passed by
    (row,) = first["turns"]
    assert row["chosen"] == 6
    assert 0 < row["labels"] <= 6
    assert set(first["seed"]["metrics"]) == {"driveable", "lanes", "depth", "objects", "signs"}
    assert set(row["metrics"]) == {"lanes"}  # the target; without measured noise no other head has a margin
    assert row["verdict"] == "refused"
    assert "the noise between seeds was not measured" in shown
    assert {"ingest", "score", "select", "label", "freeze", "train", "judge"} <= set(row["seconds"])
    assert "make up" in shown
    assert stack.state.api_url in shown

    turn(machine)
    second = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert second["seed"] is None
    assert len(second["turns"]) == 1
    with wiring.database.read() as session:
        # What people said came through Label Studio, became labels, and no task was left behind.
        assert session.scalar(select(func.count()).select_from(Annotation)) == row["labels"] + second["turns"][0][
            "labels"
        ] + session.scalar(select(func.count()).where(Annotation.outcome == "skipped"))
        human = session.scalar(select(func.count()).where(Label.source == "human"))
        assert human == 4 * (row["labels"] + second["turns"][0]["labels"])
        assert session.scalar(select(func.count()).where(LabelTask.state.in_(("intended", "open")))) == 0
        # The seed, two challengers, two spoiled ones; a verdict on each.
        assert session.scalar(select(func.count()).select_from(ModelVersion)) == 5
        assert session.scalar(select(func.count()).select_from(GateReport)) == 5
    assert Path(stack.settings.data_dir, "demo.json").stat().st_mode & 0o077 == 0
