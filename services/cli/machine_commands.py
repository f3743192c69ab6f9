"""Commands that run something on this machine, and the one that says how it is."""

from __future__ import annotations

import enum
from typing import Annotated

import typer


class Queue(enum.StrEnum):
    """The queues that a worker can serve."""

    INFERENCE = "inference"
    LABELING = "labeling"
    RETRAINING = "retraining"
    GATING = "gating"


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(up)
    app.command()(status)
    app.command()(api)
    app.command()(worker)


def up() -> None:
    """Run everything on this machine: PostgreSQL, Redis, Label Studio, the API with its pages, and the workers.

    Stops, in order, at Ctrl-C. What is set by LONGTAIL_DATABASE_URL, LONGTAIL_REDIS_URL or LONGTAIL_LABEL_STUDIO_URL is
    yours and is used as it is; the rest is started here and keeps its data in LONGTAIL_DATA_DIR (.longtail).
    """
    from services.cli.local_console import announce, print_event
    from services.local.stack import run_until_stopped
    from services.settings import Settings

    run_until_stopped(Settings(), on_event=print_event, on_ready=announce)


def status(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the loop: what waits at each stage, the champion of each line, and what is stuck."""
    from engine.queries.overview import overview
    from services.cli import output
    from services.cli.reach import project_id, reached

    with reached() as wiring, wiring.database.read() as session:
        document = overview(session, project_id(session))
    if as_json:
        output.print_json(document)
        return
    output.show_status(document)


def api() -> None:
    """Serve the REST API and the pages in this process, on LONGTAIL_DATABASE_URL or what `longtail up` runs here."""
    from services.api.serve import serve
    from services.cli.reach import running_settings
    from services.log import set_up

    settings = running_settings()
    set_up(settings, "api")
    serve(settings)


def worker(
    queue: Annotated[Queue, typer.Argument(help="Which of the queues this process serves.")],
) -> None:
    """Work on one queue in this process: of LONGTAIL_DATABASE_URL and LONGTAIL_REDIS_URL, or of what runs here.

    Run as many as you like, on as many machines: rows are the jobs, so none is done twice or lost.
    """
    import importlib

    from services.cli.reach import running_settings
    from services.log import set_up

    settings = running_settings()
    set_up(settings, f"worker-{queue}")
    raise typer.Exit(importlib.import_module(f"services.workers.{queue}").run(settings))
