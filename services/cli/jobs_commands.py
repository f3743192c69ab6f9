"""`longtail jobs`: the ledger of work."""

from __future__ import annotations

import uuid
from typing import Annotated

import typer

from engine.jobs.kinds import JOB_KINDS, JobState, job_kind

app = typer.Typer(help="The ledger of work: what is due, who has it, what died and why.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _known(kind: str | None) -> str | None:
    try:
        return kind if kind is None else job_kind(kind).name
    except ValueError as unknown:
        raise typer.BadParameter(str(unknown)) from unknown


@app.command("list")
def list_jobs(
    state: Annotated[JobState | None, typer.Option(help="Only those in this state.")] = None,
    kind: Annotated[
        str | None, typer.Option(callback=_known, help=f"Only those of this kind: {', '.join(JOB_KINDS)}.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The newest so many.")] = 30,
    routine: Annotated[
        bool, typer.Option("--all", help="Also those that a schedule makes every few seconds and that went well.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    from engine.queries import jobs
    from services.cli import output
    from services.cli.reach import project_id, reached

    with reached() as wiring, wiring.database.read() as session:
        rows = jobs.listing(session, project_id(session), limit=limit, state=state, kind=kind, routine=routine)
    columns = ["id", "kind", "state", "attempt", "created_at", "last_error"]
    output.show(rows, columns, "Jobs", as_json)


@app.command()
def retry(job: Annotated[uuid.UUID, typer.Argument(help="The dead job's id.")]) -> None:
    """Make a dead job due again, with all of its attempts."""
    from engine.jobs.ledger import retry_dead
    from engine.queries import jobs
    from services.cli import output
    from services.cli.reach import project_id, reached

    with reached() as wiring, wiring.database.unit() as unit:
        jobs.detail(unit.session, project_id(unit.session), job)
        again = retry_dead(unit, job)
        unit.commit()
    if not again:
        raise typer.BadParameter(f"{job} is not a dead job: `longtail jobs list --state dead` shows those")
    output.out.print(f"job {job} is due again")
