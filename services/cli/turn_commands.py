"""`longtail demo` and `longtail demo-real`: the loop turns, on this machine, with real parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from services.settings import Settings


def _demo_settings(**defaults: object) -> Settings:
    """The settings, with a free port wherever a port is not set and its default is taken: a demo says where it is."""
    from services.local.ports import is_free
    from services.settings import Settings

    settings = Settings()
    if settings.label_studio_url is None and not is_free(settings.label_studio_host, settings.label_studio_port):
        defaults["label_studio_port"] = 0
    if not is_free(settings.api_host, settings.api_port):
        defaults["api_port"] = 0
    unset = {name: value for name, value in defaults.items() if name not in settings.model_fields_set}
    return settings.with_values(**unset)


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(demo)
    app.command("demo-real")(demo_real)


def demo(
    turns: Annotated[int, typer.Option(min=1, max=20, help="How often the loop turns.")] = 3,
) -> None:
    """Turn the loop on a simulated fleet: ingest, score, choose, label in Label Studio, train, judge, promote.

    Everything it needs runs on this machine while it lasts, and its data stays in LONGTAIL_DATA_DIR (.longtail). Run it
    again and the loop goes on from there. Its last line is JSON.
    """
    from services.cli.local_console import print_event, print_watch
    from services.cli.output import err
    from services.demo import simulated
    from services.local.stack import start_local
    from services.wiring import opened

    err.print("[bold]Longtail demo[/]: starting everything on this machine", highlight=False)
    with (
        start_local(_demo_settings(), on_event=print_event, later=("label-studio",)) as stack,
        opened(stack.settings) as wiring,
    ):
        print_watch(stack)
        code = simulated.run(stack, wiring, err, turns)
    raise typer.Exit(code)


def demo_real(
    data: Annotated[Path, typer.Option(exists=True, file_okay=False, help="The CamVid folder.")],
    seed: Annotated[str, typer.Option(help="The labelled drives, comma-separated.")] = "0001TP",
    pool: Annotated[str, typer.Option(help="The drives that arrive unlabelled.")] = "0016E5,0016E5-15hz",
    golden: Annotated[str, typer.Option(help="The drives that the gate judges on.")] = "0006R0",
) -> None:
    """Turn the loop twice on real driving (CamVid). Its data stays in LONGTAIL_DATA_DIR (.longtail-real). JSON last."""
    from services.cli.local_console import print_event, print_watch
    from services.cli.output import err
    from services.demo import real
    from services.importing import camvid_drives
    from services.local.stack import start_local
    from services.wiring import opened

    settings = _demo_settings(data_dir=Path(".longtail-real"))
    camvid_drives(data)  # raises at once where this is no CamVid folder
    drives = real.Drives(*(tuple(filter(None, names.split(","))) for names in (seed, pool, golden)))
    err.print("[bold]Longtail on real driving[/]: starting everything on this machine", highlight=False)
    with (
        start_local(settings, on_event=print_event, later=("label-studio",)) as stack,
        opened(stack.settings) as wiring,
    ):
        print_watch(stack)
        code = real.run(stack, wiring, err, data, drives)
    raise typer.Exit(code)
