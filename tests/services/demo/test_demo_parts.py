"""What the demos are made of, apart from the loop that they turn."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from engine.domain.answers import Answer
from engine.domain.ontology import Kind
from engine.ports import TrainingSample
from services.demo import report
from services.demo.progress import Progress
from services.demo.spoiled import shuffled
from services.demo.turns import Turn

ROW = {
    "champion": 0.5,
    "reference": 0.5,
    "reference_name": "champion",
    "challenger": 0.6,
    "low": 0.02,
    "high": 0.2,
    "rule": "superiority",
    "bound": 0.0,
    "metric": "iou",
}


@pytest.mark.parametrize("count", [2, 3, 40])
def test_a_spoiled_set_gives_nobody_their_own_labels(count: int) -> None:
    samples = [
        TrainingSample(str(n), Path(f"{n}.png"), {"road": Answer(Kind.MASK, {"size": [1, 1], "runs": [[0, n + 1]]})})
        for n in range(count)
    ]
    spoiled = list(shuffled(samples, seed=3))
    assert sorted(sample.id for sample in spoiled) == sorted(sample.id for sample in samples)
    assert all(sample.labels != samples[int(sample.id)].labels for sample in spoiled)
    assert {sample.picture for sample in spoiled} == {sample.picture for sample in samples}


def test_the_last_line_is_what_checks_rely_on(capsys: pytest.CaptureFixture[str]) -> None:
    turn = Turn("turn 1", clips=3, chosen=4, control=1, labels=5, verdict="passed", metrics={"road": dict(ROW)})
    turn.seconds["train"] = 1.26
    report.last_line([turn], True, 12.34)
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document == {
        "turns": [
            {
                "clips": 3,
                "chosen": 5,
                "labels": 5,
                "metrics": {"road": {"champion": 0.5, "challenger": 0.6, "low": 0.02, "high": 0.2}},
                "verdict": "passed",
                "seconds": {"train": 1.3},
            }
        ],
        "promoted": 1,
        "spoiled_refused": True,
        "seconds": 12.3,
    }


def test_a_turn_is_shown_with_its_reasons_and_its_verdict() -> None:
    text = io.StringIO()
    turn = Turn("turn 2", chosen=4, control=1, reasons={"lanes": 3, "signs": 1}, verdict="refused", why=["too little"])
    turn.metrics = {
        "road": dict(ROW),
        "depth": {**ROW, "metric": "abs_rel", "challenger": 0.4, "rule": "non_inferiority"},
    }
    turn.targets = ["road"]
    report.print_turn(Console(file=text, width=140), turn)
    shown = text.getvalue()
    assert "lanes 3, signs 1" in shown
    assert "refused" in shown
    assert "too little" in shown
    assert "road ★" in shown
    # A lower error is an improvement, and is shown as one.
    assert "+0.100" in shown.split("depth")[1]


def test_a_stage_counts_its_seconds_also_when_it_fails() -> None:
    turn = Turn("turn 1")
    progress = Progress(Console(file=io.StringIO()))
    with progress.stage(turn, "label", "labelling") as stage:
        stage.at(2, 4)
    with pytest.raises(RuntimeError, match="stop"), progress.stage(turn, "train", "training"):
        raise RuntimeError("stop")
    assert set(turn.seconds) == {"label", "train"}
