"""/v1/schedules: retrainings at a cron's times, or when enough new labels are there."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response

from engine.domain.access import Principal
from engine.queries import schedules as views
from engine.stages import schedule_retrains as stage
from engine.stages.idempotency import Answer, once
from engine.store.unit_of_work import UnitOfWork
from services.api.deps import Idempotent, Wired, answer, having
from services.api.etag import EtagRoute
from services.api.paging import Cursor, Limit, PageOut, page_out
from services.api.schemas.fields import Name
from services.api.schemas.queue import JobStarted
from services.api.schemas.schedules import FiringOut, ScheduleIn, ScheduleOut

router = APIRouter(prefix="/v1/schedules", tags=["schedules"], route_class=EtagRoute)

Reader = Annotated[Principal, Depends(having("schedules:read"))]
Writer = Annotated[Principal, Depends(having("schedules:write"))]


@router.get("", response_model=PageOut[ScheduleOut], summary="List schedules")
def list_schedules(
    wiring: Wired,
    principal: Reader,
    limit: Limit = 50,
    after: Cursor = None,
    line: Annotated[Name | None, Query(description="Name of a model line.")] = None,
) -> Any:
    with wiring.database.read() as session:
        return page_out(views.listing(session, principal.project_id, limit + 1, after, line), limit)


@router.post("", response_model=ScheduleOut, status_code=201, summary="Make a schedule")
def post_schedule(body: ScheduleIn, response: Response, wiring: Wired, principal: Writer, request: Idempotent) -> Any:
    """It is on at once. With `new_labels`, what is labelled already counts too."""

    def act(unit: UnitOfWork) -> Answer:
        asked = stage.ScheduleRequest(**body.model_dump())
        schedule = stage.make_schedule(unit, principal.project_id, asked, str(principal))
        shown = ScheduleOut.model_validate(views.detail(unit.session, principal.project_id, schedule.id))
        return Answer(201, shown.model_dump(mode="json"), {"Location": f"/v1/schedules/{schedule.id}"})

    return answer(response, once(wiring.database, request, act))


@router.get("/{schedule_id}", response_model=ScheduleOut, summary="One schedule")
def get_schedule(schedule_id: uuid.UUID, wiring: Wired, principal: Reader) -> Any:
    with wiring.database.read() as session:
        return views.detail(session, principal.project_id, schedule_id)


@router.get("/{schedule_id}/firings", response_model=PageOut[FiringOut], summary="What it made, newest first")
def list_firings(
    schedule_id: uuid.UUID, wiring: Wired, principal: Reader, limit: Limit = 50, after: Cursor = None
) -> Any:
    with wiring.database.read() as session:
        views.detail(session, principal.project_id, schedule_id)
        return page_out(views.firings(session, principal.project_id, limit + 1, after, schedule_id), limit)


@router.post("/{schedule_id}:pause", response_model=ScheduleOut, summary="Let a schedule rest")
def pause(schedule_id: uuid.UUID, response: Response, wiring: Wired, principal: Writer, request: Idempotent) -> Any:
    """A retraining that it has made goes on."""
    return answer(response, once(wiring.database, request, _changing(stage.pause, principal, schedule_id)))


@router.post("/{schedule_id}:resume", response_model=ScheduleOut, summary="Let a paused schedule go on from now")
def resume(schedule_id: uuid.UUID, response: Response, wiring: Wired, principal: Writer, request: Idempotent) -> Any:
    """Times that it missed while it was paused are not made up for."""
    return answer(response, once(wiring.database, request, _changing(stage.resume, principal, schedule_id)))


def _changing(
    verb: Callable[[UnitOfWork, uuid.UUID, uuid.UUID, str], None], principal: Principal, schedule_id: uuid.UUID
) -> Callable[[UnitOfWork], Answer]:
    """Does it, and tells what the schedule is then."""

    def act(unit: UnitOfWork) -> Answer:
        verb(unit, principal.project_id, schedule_id, str(principal))
        unit.session.flush()
        shown = ScheduleOut.model_validate(views.detail(unit.session, principal.project_id, schedule_id))
        return Answer(200, shown.model_dump(mode="json"))

    return act


@router.post("/{schedule_id}:run", response_model=JobStarted, status_code=202, summary="Retrain now")
def run(schedule_id: uuid.UUID, response: Response, wiring: Wired, principal: Writer, request: Idempotent) -> Any:
    """Beside its rule, also while it is paused; refused while the line is being retrained."""

    def act(unit: UnitOfWork) -> Answer:
        job_id = stage.run_now(unit, principal.project_id, schedule_id, str(principal))
        return Answer(202, {"job_id": str(job_id)}, {"Location": f"/v1/jobs/{job_id}"})

    return answer(response, once(wiring.database, request, act))


@router.delete("/{schedule_id}", status_code=204, summary="Remove a schedule")
def delete_schedule(schedule_id: uuid.UUID, wiring: Wired, principal: Writer) -> None:
    """What it made stays, and goes on."""
    with wiring.database.unit() as unit:
        stage.remove(unit, principal.project_id, schedule_id, str(principal))
        unit.commit()
