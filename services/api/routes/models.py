"""/v1/models: versions, those made elsewhere, and what the gate is asked about them."""

from __future__ import annotations

import json
import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from engine.adapters.http_scorer import HttpScorer
from engine.domain.access import Principal
from engine.domain.formats import DECLARED_ALONE, ModelFormat
from engine.domain.refusals import Invalid
from engine.queries import models as views
from engine.stages.enrol import enrol_scorer
from engine.stages.gate_request import JudgeRequest, request_judgement, request_promotion
from engine.stages.idempotency import Answer, once
from engine.stages.register import register_model
from engine.store.unit_of_work import UnitOfWork
from services.api.deps import Idempotent, Wired, answer, having, without_idempotency
from services.api.etag import EtagRoute
from services.api.multipart import Form, received
from services.api.paging import Cursor, Limit, PageOut, page_out
from services.api.schemas.fields import Name, storable
from services.api.schemas.models import JudgeIn, ModelOut, ModelSummary, PromoteIn
from services.api.schemas.queue import JobStarted
from services.wiring import Wiring, golden_picture

router = APIRouter(prefix="/v1/models", tags=["models"], route_class=EtagRoute)

Reader = Annotated[Principal, Depends(having("models:read"))]
Writer = Annotated[Principal, Depends(having("models:write"))]

WEIGHTS = "weights"
DOCUMENTS = ("line", "config", "note", "format")
FORM_SCHEMA: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["line", "config"],
                    "properties": {
                        "line": {"type": "string", "description": "Name of the model line."},
                        "config": {
                            "type": "string",
                            "contentMediaType": "application/json",
                            "description": "What rebuilds the network; `heads` lists which of the line's it has. "
                            "For ONNX the declaration of its inputs, outputs and heads.",
                        },
                        "format": {
                            "type": "string",
                            "enum": [str(format) for format in ModelFormat],
                            "default": str(ModelFormat.HYDRANET),
                        },
                        "note": {"type": "string"},
                        WEIGHTS: {
                            "type": "string",
                            "format": "binary",
                            "description": "A safetensors file or an ONNX file; for `predictions` any file "
                            "or none, for `http` none.",
                        },
                    },
                }
            }
        },
    }
}


@router.get("", response_model=PageOut[ModelSummary], summary="List model versions")
def list_models(
    wiring: Wired,
    principal: Reader,
    limit: Limit = 50,
    after: Cursor = None,
    line: Annotated[Name | None, Query()] = None,
) -> Any:
    with wiring.database.read() as session:
        return page_out(views.versions(session, principal.project_id, limit + 1, after, line), limit)


@router.get("/{model_id}", response_model=ModelOut, summary="One model version with its artifacts")
def get_model(model_id: uuid.UUID, wiring: Wired, principal: Reader) -> Any:
    with wiring.database.read() as session:
        return views.version(session, principal.project_id, model_id)


@router.post(
    "",
    response_model=ModelOut,
    status_code=201,
    openapi_extra=FORM_SCHEMA,
    dependencies=[Depends(without_idempotency)],
    summary="Register a model that was made elsewhere",
)
async def post_model(request: Request, response: Response, wiring: Wired, principal: Writer) -> Any:
    """It becomes a version of its line, for the gate to judge. Each call makes a version, the same weights or not, so
    an `Idempotency-Key` is refused."""
    limit = wiring.settings.max_upload_bytes
    async with received(request, wiring.blobs, DOCUMENTS.__contains__, limit) as form:
        shown = await run_in_threadpool(_register, wiring, principal, form)
    response.headers["Location"] = f"/v1/models/{shown['id']}"
    return shown


def _register(wiring: Wiring, principal: Principal, form: Form) -> dict[str, Any]:
    for name in ("line", "config"):
        if name not in form.documents:
            raise Invalid("part-missing", f"the form has no part {name!r}", "send the parts line, config and weights")
    if strange := sorted(form.files.keys() - {WEIGHTS}):
        raise Invalid(
            "part-unknown",
            f"the form has a part {strange[0]!r}",
            "parts are line, format, config, note and weights",
        )
    try:
        text = {name: bytes(content).decode() for name, content in form.documents.items()}
        config = json.loads(text["config"])
        if not isinstance(config, dict):
            raise ValueError("the config must be a JSON object")
        storable({"config": config, **text})
    except (ValueError, RecursionError) as error:
        raise Invalid(
            "invalid-config", f"a part of the form can't be read: {error}", "send UTF-8 text and JSON"
        ) from error
    format = text.get("format", ModelFormat.HYDRANET)
    if format == ModelFormat.HTTP:
        return _shown(wiring, principal, _enrolled(wiring, principal, form, text, config))
    if WEIGHTS not in form.files:
        if format not in DECLARED_ALONE:
            raise Invalid("part-missing", f"the form has no part {WEIGHTS!r}", "send the model's file")
        # What such a version is made of is its declaration, so that is what is hashed, kept and judged.
        form.files[WEIGHTS] = wiring.blobs.begin()
        form.files[WEIGHTS].write(json.dumps(config, sort_keys=True, separators=(",", ":")).encode())
    model = register_model(
        wiring.database,
        principal.project_id,
        text["line"],
        format,
        form.files[WEIGHTS],
        config,
        text.get("note"),
        wiring.model_check,
        str(principal),
    )
    return _shown(wiring, principal, model.id)


def _enrolled(
    wiring: Wiring, principal: Principal, form: Form, text: dict[str, str], config: dict[str, Any]
) -> uuid.UUID:
    if form.files:
        raise Invalid("part-unknown", "a scorer elsewhere has no file", "leave the part weights out")
    scorer = HttpScorer(golden_picture(wiring), wiring.redactor, wiring.settings.outbound_networks)
    return enrol_scorer(
        wiring.database,
        wiring.blobs,
        principal.project_id,
        text["line"],
        config,
        text.get("note"),
        scorer,
        str(principal),
    ).id


def _shown(wiring: Wiring, principal: Principal, model_id: uuid.UUID) -> dict[str, Any]:
    with wiring.database.read() as session:
        return views.version(session, principal.project_id, model_id)


@router.post("/{model_id}:judge", response_model=JobStarted, status_code=202, summary="Have the gate judge it")
def judge(
    model_id: uuid.UUID, body: JudgeIn, response: Response, wiring: Wired, principal: Writer, request: Idempotent
) -> Any:
    def act(unit: UnitOfWork) -> Answer:
        return _started(request_judgement(unit, principal.project_id, _asked(model_id, body), str(principal)))

    return answer(response, once(wiring.database, request, act))


@router.post("/{model_id}:promote", response_model=JobStarted, status_code=202, summary="Have it made the champion")
def promote(
    model_id: uuid.UUID, body: PromoteIn, response: Response, wiring: Wired, principal: Writer, request: Idempotent
) -> Any:
    """By its newest gate report, which must have passed. With waivers it is judged again under them first."""

    def act(unit: UnitOfWork) -> Answer:
        if body.waivers:
            return _started(request_judgement(unit, principal.project_id, _asked(model_id, body), str(principal)))
        return _started(request_promotion(unit, principal.project_id, model_id, str(principal)))

    return answer(response, once(wiring.database, request, act))


def _asked(model_id: uuid.UUID, body: JudgeIn | PromoteIn) -> JudgeRequest:
    return JudgeRequest(
        model_id, body.golden_set_id, body.target_heads, [waiver.model_dump() for waiver in body.waivers]
    )


def _started(job_id: uuid.UUID) -> Answer:
    return Answer(202, {"job_id": str(job_id)}, {"Location": f"/v1/jobs/{job_id}"})
