"""Models that are not ours take part in the loop: the workers of production judge them and score with them."""

from __future__ import annotations

import hashlib
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from loop_fixtures import TRAINING, Loop
from onnx_models import road_declared, road_model
from role_fixtures import Roles
from scorer_server import ScorerServer, road_answers
from sqlalchemy import select

from engine.adapters.by_format import CheckByFormat
from engine.adapters.http_scorer import HttpScorer
from engine.adapters.onnx.check import OnnxCheck
from engine.adapters.redaction import NoRedaction
from engine.domain.formats import ModelFormat
from engine.stages.enrol import enrol_scorer
from engine.stages.register import register_model
from engine.store.blobs import sha256_of
from engine.store.lines import artifact_of
from engine.store.predictions import read
from engine.store.tables.models import Embedding, GateReport, Run, Score, Scoring


def register_onnx(loop: Loop, model: onnx.ModelProto, config: dict[str, Any]) -> uuid.UUID:
    content = model.SerializeToString()
    with loop.blobs.begin() as writer:
        writer.write(content)
        version = register_model(
            loop.database,
            loop.project_id,
            loop.line().name,
            ModelFormat.ONNX,
            writer,
            config,
            None,
            CheckByFormat({ModelFormat.ONNX: OnnxCheck()}),
            "tester",
        )
    assert version.weights_sha256 == hashlib.sha256(content).hexdigest()
    return version.id


@pytest.mark.slow
def test_an_onnx_model_is_judged_crowned_and_scores_the_pool(loop: Loop, roles: Roles) -> None:
    loop.labelled_drives(range(8))
    loop.labelled_drives(range(100, 108), "golden")
    loop.freeze()
    golden = loop.freeze_golden().id
    model = register_onnx(loop, road_model(), road_declared())
    loop.enqueue("judge", model, {"golden_set_id": str(golden), "target_heads": ["road"]})
    roles.start("gating")
    roles.start("inference")
    roles.wait(lambda: loop.line().champion_id == model, 90)
    roles.wait(lambda: not roles.open("score", "judge", "promote"), 60)
    (report,) = loop.all(GateReport)
    assert report.verdict == "passed", report.reasons
    rows = {row["head"]: row for row in report.report["rows"] if row["slice"] is None}
    assert rows["road"]["challenger"] > 0.9
    assert rows["light"]["challenger"] == 1.0
    assert loop.count(Scoring) == 8
    assert loop.count(Score) == loop.count(Embedding) * 2 > 0
    assert loop.line().selection_model_id == model
    with loop.database.read() as session:
        scoring = session.scalars(select(Scoring)).first()
        assert scoring is not None
        predictions = read(loop.blobs.read(sha256_of(session, scoring.predictions_blob_id)))
        scene = loop.scenes[scoring.clip_id]
        vectors = [np.asarray(e.vector, dtype=np.float64) for e in session.scalars(select(Embedding))]
    assert {p.answer.value["choice"] for p in predictions if p.head == "light"} == {"night" if scene.night else "day"}
    assert all(np.linalg.norm(vector) == pytest.approx(1, abs=1e-3) for vector in vectors)


EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "pixel_trainer.py"


@pytest.mark.slow
def test_the_documents_own_trainer_trains_and_its_model_is_judged(
    make_loop: Callable[..., Loop], make_roles: Callable[..., Roles]
) -> None:
    masks_only = {"name": "retired_head", "head": "light", "by": "anna", "why": "it learns masks alone"}
    loop = make_loop(
        training={**TRAINING, "trainer": "pixels", "regression_steps": 300},
        auto_promote=False,
        gate_waivers=[masks_only],
    )
    roles = make_roles(loop, trainers={"pixels": [sys.executable, str(EXAMPLE)]})
    loop.labelled_drives(range(16))
    loop.labelled_drives(range(100, 108), "golden")
    frozen = loop.freeze()
    loop.freeze_golden()
    run_id = loop.start_run(frozen.id)
    assert loop.run(run_id).trainer == "pixels"
    roles.start("retraining")
    roles.start("gating")
    roles.wait(lambda: loop.count(GateReport), 90)
    run = loop.run(run_id)
    assert (run.state, run.metrics["road"]["pictures"]) == ("finished", 32), run.failure
    assert run.progress["steps"] == 300
    (report,) = loop.all(GateReport)
    assert report.verdict == "passed", report.reasons
    model = loop.model(report.challenger_id)
    with loop.database.read() as session:
        artifact = artifact_of(session, model.id)
    assert (model.origin, model.run_id, model.heads, artifact.format) == ("trained", run_id, ["road"], "onnx")
    assert loop.run(loop.start_run(frozen.id, seed=2, overrides={"trainer": "unknown"})).state == "due"
    roles.wait(lambda: not roles.open("train"), 60)
    (refused,) = loop.all(Run, Run.state == "refused")
    assert "no trainer 'unknown'" in str(refused.failure)


@pytest.mark.slow
def test_a_scorer_elsewhere_is_judged_waited_for_and_not_believed_once_it_changed(
    loop: Loop, make_roles: Callable[..., Roles], scorer_server: ScorerServer
) -> None:
    roles = make_roles(loop, outbound_networks=["127.0.0.0/8"])
    loop.labelled_drives(range(8))
    loop.labelled_drives(range(100, 108), "golden")
    loop.freeze()
    golden = loop.freeze_golden().id
    scorer = HttpScorer(
        lambda sha256: loop.reader.decode_image(loop.blobs.read(sha256)), NoRedaction(), ["127.0.0.0/8"]
    )
    config = {"url": scorer_server.url, "heads": ["road", "light"], "timeout_s": 5}
    version = enrol_scorer(loop.database, loop.blobs, loop.project_id, loop.line().name, config, None, scorer, "tester")
    loop.enqueue("judge", version.id, {"golden_set_id": str(golden)})
    roles.start("gating")
    roles.wait(lambda: loop.line().champion_id == version.id, 90)
    (report,) = loop.all(GateReport)
    assert report.verdict == "passed", report.reasons
    # It is away while a worker starts on the pool: its jobs wait, and no attempt is counted.
    scorer_server.replies = [(503, {}, b"loading")] * 3
    roles.start("inference")
    roles.wait(lambda: loop.count(Scoring) == 7, 60)
    (waiting,) = loop.jobs("score", "due")
    assert waiting.attempt == 0
    assert "answered 503" in str(waiting.last_error)
    assert loop.count(Score) == 7 * 3 * 2
    # And it becomes another model: nothing of that is recorded under the version.
    roles.kill_all()
    scorer_server.answer = lambda request: {
        "answers": [
            {"heads": {**answer["heads"], "light": {"value": {"choice": "day"}, "uncertainty": 9}}}
            for answer in road_answers(request)["answers"]
        ]
    }
    clip = loop.add_clip(30)
    roles.start("inference")
    roles.wait(lambda: any(job.subject_id == clip for job in loop.jobs("score", "dead")), 60)
    (dead,) = (job for job in loop.jobs("score", "dead") if job.subject_id == clip)
    assert "no longer the one that was registered" in str(dead.last_error)
    assert loop.count(Scoring, Scoring.clip_id == clip) == 0
