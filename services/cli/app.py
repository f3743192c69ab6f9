"""`longtail`: the commands. Each imports what it needs when it is run, so that `--help` is quick."""

from __future__ import annotations

import typer

from services.cli import (
    access_commands,
    erasure_commands,
    jobs_commands,
    loop_commands,
    machine_commands,
    schedules_commands,
    turn_commands,
)

app = typer.Typer(
    name="longtail",
    help="A self-hosted data engine: score what the fleet sees, label what the model doubts, retrain, judge, promote.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

machine_commands.add_to(app)
turn_commands.add_to(app)
loop_commands.add_to(app)
erasure_commands.add_to(app)
app.add_typer(jobs_commands.app, name="jobs")
app.add_typer(schedules_commands.app, name="schedules")
app.add_typer(access_commands.devices, name="devices")
app.add_typer(access_commands.tokens, name="tokens")


def main() -> None:
    """The entry point: errors that say what to do are shown as a line, not as a traceback."""
    from services.cli.output import report_errors

    with report_errors():
        app()
