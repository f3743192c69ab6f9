"""Ask the gate: a model version is to be judged, or, once it has passed, to become the champion."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.domain.refusals import Conflict, Invalid, NotFound
from engine.jobs import ledger
from engine.store import audit
from engine.store.lines import newest_golden_set, ontology_of
from engine.store.tables.labels import GoldenSet
from engine.store.tables.metadata import new_id
from engine.store.tables.models import GateReport, ModelLine, ModelVersion, Run
from engine.store.tables.work import Job
from engine.store.unit_of_work import UnitOfWork


@dataclass(frozen=True)
class JudgeRequest:
    """A judgement to be made. `target_heads` are for the first one of a model that no run of ours declared them for."""

    model_id: uuid.UUID
    golden_set_id: uuid.UUID | None = None  # the newest of the line where none is named
    target_heads: Sequence[str] = ()
    waivers: Sequence[Mapping[str, Any]] = ()  # {"name", "why", "head"?}: rules that a person answers for


def request_judgement(unit: UnitOfWork, project_id: uuid.UUID, request: JudgeRequest, actor: str) -> uuid.UUID:
    """Make a judgement due; returns its job. Raises NotFound, Invalid, Conflict, OntologyError."""
    session = unit.session
    model = _model(unit, project_id, request.model_id)
    line = session.get_one(ModelLine, model.line_id)
    ontology = ontology_of(session, line.ontology_id)
    for head in request.target_heads:
        ontology.head(head)
    declared, where = _declared(session, model)
    if declared and request.target_heads and set(declared) != set(request.target_heads):
        raise Conflict(
            "targets-declared",
            f"version {model.number} has its target heads from {where}: {', '.join(declared)}",
            "leave `target_heads` out: they can't be changed after the fact",
        )
    golden = _golden(unit, line, request.golden_set_id)
    waivers = [{**waiver, "by": actor} for waiver in request.waivers]
    job_id = ledger.enqueue(
        unit,
        kind="judge",
        project_id=project_id,
        subject_id=model.id,
        # Asked for by a person, so made again even if the same was judged before.
        dedupe_key=f"judge:{model.id}:{golden.id}:{line.champion_id}:{new_id()}",
        payload={
            "golden_set_id": str(golden.id),
            "target_heads": list(declared or request.target_heads),
            "waivers": waivers,
        },
    )
    assert job_id is not None  # the dedupe key is new
    if waivers:
        audit.note(unit.session, project_id, actor, "waive", "model_version", model.id, {"waivers": waivers})
    return job_id


def request_promotion(unit: UnitOfWork, project_id: uuid.UUID, model_id: uuid.UUID, actor: str) -> uuid.UUID:
    """Make the promotion by the model's newest gate report due; returns its job. Raises NotFound, Conflict."""
    model = _model(unit, project_id, model_id)
    report = unit.session.execute(
        select(GateReport).where(GateReport.challenger_id == model.id).order_by(GateReport.id.desc()).limit(1)
    ).scalar_one_or_none()
    if report is None:
        raise Conflict(
            "not-judged", f"version {model.number} was not judged yet", f"ask for it: POST /v1/models/{model_id}:judge"
        )
    if report.verdict != "passed":
        raise Conflict(
            "refused-by-gate",
            f"version {model.number} was refused by the gate: " + "; ".join(str(reason) for reason in report.reasons),
            f"see GET /v1/gate-reports/{report.id}; some rules may be waived on record, with `waivers`",
        )
    job_id = ledger.enqueue(
        unit,
        kind="promote",
        project_id=project_id,
        subject_id=report.id,
        dedupe_key=f"promote:{report.id}:{new_id()}",
        payload={"actor": actor},
    )
    assert job_id is not None  # the dedupe key is new
    audit.note(
        unit.session, project_id, actor, "ask for promotion", "model_version", model.id, {"gate_report": str(report.id)}
    )
    return job_id


def _declared(session: Session, model: ModelVersion) -> tuple[list[str], str]:
    """The heads on which the model has to be better, and where they were declared; none while nobody has said.

    Of a model made elsewhere, its first judgement with target heads declares them: else it could be judged by one head
    after the other until one passes.
    """
    if model.run_id is not None:
        return session.execute(select(Run.target_heads).where(Run.id == model.run_id)).scalar_one(), "its run"
    asked = session.scalars(
        select(Job.payload["target_heads"])
        .where(Job.kind == "judge", Job.subject_id == model.id, Job.payload["target_heads"] != [])
        .order_by(Job.id)
        .limit(1)
    ).first()
    judged = session.scalars(
        select(GateReport.target_heads)
        .where(GateReport.challenger_id == model.id, GateReport.target_heads != [])
        .order_by(GateReport.id)
        .limit(1)
    ).first()
    return list(asked or judged or ()), "an earlier judgement"


def _model(unit: UnitOfWork, project_id: uuid.UUID, model_id: uuid.UUID) -> ModelVersion:
    """The model, its row locked: of two first judgements at once, one declares the target heads."""
    model = unit.session.execute(
        select(ModelVersion)
        .where(ModelVersion.project_id == project_id, ModelVersion.id == model_id)
        .with_for_update(key_share=True)
    ).scalar_one_or_none()
    if model is None:
        raise NotFound("no-such-model", f"there is no model {model_id}", "list them with GET /v1/models")
    return model


def _golden(unit: UnitOfWork, line: ModelLine, golden_set_id: uuid.UUID | None) -> GoldenSet:
    if golden_set_id is None:
        golden = newest_golden_set(unit.session, line.id)
    else:
        query = select(GoldenSet).where(GoldenSet.line_id == line.id, GoldenSet.id == golden_set_id)
        golden = unit.session.scalars(query).one_or_none()
    if golden is None:
        raise Invalid(
            "no-golden-set",
            f"line {line.name!r} has no golden set" + (f" {golden_set_id}" if golden_set_id else ""),
            "label the golden drives and freeze them; GET /v1/golden-sets lists what there is",
        )
    return golden
