"""`longtail schedules`: retrainings at a cron's times, or when enough new labels are there."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from engine.store.unit_of_work import UnitOfWork

app = typer.Typer(help="Retrainings at set times, or when enough new labels are there.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Named = Annotated[str, typer.Argument(help="The schedule's name.")]
ACTOR = "cli"
MAX_SEED = 2**31 - 1


@app.command("list")
def list_schedules(
    line: Annotated[str | None, typer.Option(help="Only this line's.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The first so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List schedules: when each fires next, what it waits for, and what its last firing made."""
    from engine.queries import schedules
    from services.cli import output
    from services.cli.reach import project_id, reached

    with reached() as wiring, wiring.database.read() as session:
        rows = schedules.listing(session, project_id(session), limit, line=line)
    shown = rows if as_json else [_row(row) for row in rows]
    output.show(shown, ["name", "line", "rule", "state", "next", "last", "made"], "Schedules", as_json)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="A name for it, without a colon.")],
    line: Annotated[str, typer.Option(help="The model line to retrain.")],
    target: Annotated[list[str], typer.Option(help="A head that has to get better; repeat it.")],
    cron: Annotated[
        str | None, typer.Option(help='When: minute, hour, day of month, month, day of week, as in "30 3 * * MON".')
    ] = None,
    zone: Annotated[
        str | None, typer.Option(help='The time zone of --cron, as in "Europe/Berlin"; by default UTC.')
    ] = None,
    new_labels: Annotated[
        int | None, typer.Option(min=1, help="In place of --cron: at so many labels that the last dataset lacks.")
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="Whose labels to count: human, import, sensor, simulator; repeat it. By default the first two."
        ),
    ] = None,
    scratch: Annotated[bool, typer.Option(help="Start from nothing instead of from the champion.")] = False,
    noise_seed: Annotated[
        list[int] | None,
        typer.Option(min=0, max=MAX_SEED, help="Train again under this seed, to measure the noise; repeat it."),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps, instead of the line's own.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a schedule, which is on at once."""
    from engine.stages.schedule_retrains import ScheduleRequest, make_schedule

    request = ScheduleRequest(
        name=name,
        line=line,
        target_heads=target,
        cron=cron,
        time_zone=zone,
        new_labels=new_labels,
        label_sources=source or None,
        start="scratch" if scratch else "warm",
        noise_seeds=noise_seed or [],
        overrides={"steps": steps} if steps else {},
    )
    _act(name, lambda unit, project, _: make_schedule(unit, project, request, ACTOR), as_json, new=True)


@app.command()
def pause(name: Named, as_json: AsJson = False) -> None:
    """Let a schedule rest; a retraining that it has made goes on."""
    from engine.stages import schedule_retrains as stage

    _act(name, lambda unit, project, found: stage.pause(unit, project, found, ACTOR), as_json)


@app.command()
def resume(name: Named, as_json: AsJson = False) -> None:
    """Let a paused schedule go on from now; times that it missed are not made up for."""
    from engine.stages import schedule_retrains as stage

    _act(name, lambda unit, project, found: stage.resume(unit, project, found, ACTOR), as_json)


@app.command()
def run(name: Named, as_json: AsJson = False) -> None:
    """Retrain now, beside the schedule's rule; refused while its line is being retrained."""
    from engine.stages import schedule_retrains as stage

    _act(name, lambda unit, project, found: stage.run_now(unit, project, found, ACTOR), as_json)


@app.command()
def remove(name: Named, as_json: AsJson = False) -> None:
    """Remove a schedule; what it made stays, and goes on."""
    from engine.stages import schedule_retrains as stage
    from services.cli import output

    _act(name, lambda unit, project, found: stage.remove(unit, project, found, ACTOR), as_json, show=False)
    if as_json:
        output.print_json({"removed": name})
    else:
        output.out.print(f"schedule {name!r} is removed", highlight=False)


def _act(
    name: str,
    act: Callable[[UnitOfWork, uuid.UUID, uuid.UUID], object],
    as_json: bool,
    new: bool = False,
    show: bool = True,
) -> None:
    """Do it to the schedule of this name, and show what that is now."""
    from engine.queries import schedules
    from services.cli import output
    from services.cli.reach import project_id, reached

    with reached() as wiring:
        with wiring.database.unit() as unit:
            project = project_id(unit.session)
            found = uuid.UUID(int=0) if new else schedules.id_of(unit.session, project, name)
            act(unit, project, found)
            unit.commit()
        if not show:
            return
        with wiring.database.read() as session:
            told = schedules.detail(session, project, schedules.id_of(session, project, name))
    if as_json:
        output.print_json(told)
        return
    row = _row(told)
    output.show([row], ["name", "line", "rule", "state", "next", "last", "made"], "Schedule", False)


def _row(told: dict[str, Any]) -> dict[str, Any]:
    """What people want to know of it."""
    coming = told["next_due"]
    if told["state"] == "waiting":
        coming = f"waits: {told['waits_for']}"
    elif told["new_labels"] is not None and told["state"] != "paused":
        counted = told["counted"]
        coming = "not counted yet" if counted is None else f"{counted} of {told['needed']} labels"
    last = told["last"]
    return {**told, "next": coming, "last": last["fired_at"] if last else None, "made": _made(last) if last else None}


def _made(last: dict[str, Any]) -> str:
    if last["skipped"]:
        return str(last["skipped"])
    if not last["runs"]:
        return f"freeze job {last['job_state'] or 'is gone'}" + (f": {last['job_error']}" if last["job_error"] else "")
    challenger = next((run for run in last["runs"] if run["purpose"] == "challenger"), last["runs"][0])
    became = f"model v{challenger['model_number']}" if challenger["model_number"] else f"run {challenger['state']}"
    return f"dataset #{last['dataset']['number']}, {became}" + (
        f", {challenger['verdict']}" if challenger["verdict"] else ""
    )
