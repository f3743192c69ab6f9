"""/v1/ontologies and /v1/lines: what models answer, and the lines that they belong to."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from engine.domain.access import Principal
from engine.queries import models as views
from engine.stages import retrain
from engine.stages.idempotency import Answer, once
from engine.stages.promote import rollback
from engine.stages.register import make_line, register_ontology
from engine.store.unit_of_work import UnitOfWork
from services.api.deps import Idempotent, Wired, answer, having
from services.api.etag import EtagRoute
from services.api.paging import Cursor, Limit, PageOut, page_out
from services.api.schemas.models import LineIn, LineOut, Moved, OntologyIn, OntologyOut, RetrainIn, RollbackIn
from services.api.schemas.queue import JobStarted

router = APIRouter(prefix="/v1", tags=["lines"], route_class=EtagRoute)

OntologyReader = Annotated[Principal, Depends(having("ontologies:read"))]
OntologyWriter = Annotated[Principal, Depends(having("ontologies:write"))]
ModelReader = Annotated[Principal, Depends(having("models:read"))]
ModelWriter = Annotated[Principal, Depends(having("models:write"))]


@router.get("/ontologies", response_model=PageOut[OntologyOut], summary="List ontology versions")
def list_ontologies(wiring: Wired, principal: OntologyReader, limit: Limit = 50, after: Cursor = None) -> Any:
    with wiring.database.read() as session:
        return page_out(views.ontologies(session, principal.project_id, limit + 1, after), limit)


@router.post("/ontologies", response_model=OntologyOut, status_code=201, summary="Register an ontology version")
def post_ontology(body: OntologyIn, response: Response, wiring: Wired, principal: OntologyWriter) -> Any:
    """The same document again is the same ontology version; another one under its name and version is a conflict."""
    with wiring.database.unit() as unit:
        row = register_ontology(unit, principal.project_id, body.model_dump())
        unit.commit()
    response.headers["Location"] = f"/v1/ontologies/{row.id}"
    return get_ontology(row.id, wiring, principal)


@router.get("/ontologies/{ontology_id}", response_model=OntologyOut, summary="One ontology version")
def get_ontology(ontology_id: uuid.UUID, wiring: Wired, principal: OntologyReader) -> Any:
    with wiring.database.read() as session:
        return views.ontology(session, principal.project_id, ontology_id)


@router.get("/lines", response_model=PageOut[LineOut], summary="List model lines")
def list_lines(wiring: Wired, principal: ModelReader, limit: Limit = 50, after: Cursor = None) -> Any:
    with wiring.database.read() as session:
        return page_out(views.lines(session, principal.project_id, limit + 1, after), limit)


@router.post("/lines", response_model=LineOut, status_code=201, summary="Make a model line")
def post_line(body: LineIn, response: Response, wiring: Wired, principal: ModelWriter, request: Idempotent) -> Any:
    def act(unit: UnitOfWork) -> Answer:
        line = make_line(
            unit,
            principal.project_id,
            body.name,
            body.ontology.name,
            body.ontology.version,
            body.settings,
            str(principal),
        )
        shown = LineOut.model_validate(views.line(unit.session, principal.project_id, line.id))
        return Answer(201, shown.model_dump(mode="json"), {"Location": f"/v1/lines/{line.id}"})

    return answer(response, once(wiring.database, request, act))


@router.get("/lines/{line_id}", response_model=LineOut, summary="One model line and its champion")
def get_line(line_id: uuid.UUID, wiring: Wired, principal: ModelReader) -> Any:
    with wiring.database.read() as session:
        return views.line(session, principal.project_id, line_id)


@router.post("/lines/{line_id}:retrain", response_model=JobStarted, status_code=202, summary="Freeze and train")
def post_retrain(
    line_id: uuid.UUID, body: RetrainIn, response: Response, wiring: Wired, principal: ModelWriter, request: Idempotent
) -> Any:
    def act(unit: UnitOfWork) -> Answer:
        views.line(unit.session, principal.project_id, line_id)
        job_id = retrain.request(unit, line_id, **body.model_dump())
        return Answer(202, {"job_id": str(job_id)}, {"Location": f"/v1/jobs/{job_id}"})

    return answer(response, once(wiring.database, request, act))


@router.post("/lines/{line_id}:rollback", response_model=Moved, summary="Make an earlier champion the champion again")
def post_rollback(
    line_id: uuid.UUID, body: RollbackIn, response: Response, wiring: Wired, principal: ModelWriter, request: Idempotent
) -> Any:
    """Sent again without an `Idempotency-Key`, it goes back one champion more."""

    def act(unit: UnitOfWork) -> Answer:
        views.line(unit.session, principal.project_id, line_id)
        moved = rollback(unit, line_id, str(principal), body.reason, body.to_number)
        return Answer(200, Moved.model_validate(dataclasses.asdict(moved)).model_dump(mode="json"))

    return answer(response, once(wiring.database, request, act))
