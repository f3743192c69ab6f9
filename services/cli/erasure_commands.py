"""`longtail erase`, `longtail holds` and `longtail retention`: what goes for good, and what has to stay."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from engine.domain.erasure import Target
    from services.wiring import Wiring

holds = typer.Typer(help="Legal holds: what may neither be erased nor expire.", no_args_is_help=True)
retention = typer.Typer(help="How long clips are kept.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Vehicle = Annotated[str | None, typer.Option(help="The vehicle's external id; beside --drive, whose drive.")]
Drive = Annotated[str | None, typer.Option(help="The drive's external id.")]
Clip = Annotated[uuid.UUID | None, typer.Option(help="The clip's id.")]
ACTOR = "cli"


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(erase)
    app.command()(erasures)
    app.add_typer(holds, name="holds")
    app.add_typer(retention, name="retention")


def erase(
    vehicle: Vehicle = None,
    drive: Drive = None,
    clip: Clip = None,
    why: Annotated[str | None, typer.Option(help="Why; it is kept, so name nobody in it.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask: there is no way back.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait until it is done, and show the receipt.")] = True,
    as_json: AsJson = False,
) -> None:
    """Erase a vehicle, a drive or a clip for good, with everything that was made of it.

    The same again shows the same erasure. Interrupted, the workers go on with it; `longtail erasures` shows them.
    """
    from engine.queries import erasures as views
    from engine.stages.erasure_request import request_erasure
    from services.cli import output
    from services.cli.reach import project_id, reached

    target = _target(vehicle, drive, clip)
    if not yes:
        typer.confirm(f"Erase {_named(target)} and everything made of it, for good?", abort=True, err=True)
    with reached() as wiring:
        with wiring.database.unit() as unit:
            project = project_id(unit.session)
            erasure, created = request_erasure(unit, project, target, why, ACTOR)
            unit.commit()
        if not created:
            output.err.print("asked for before: this is that erasure", style="yellow")
        told = _await(wiring, project, erasure.id) if wait else None
        if told is None:
            with wiring.database.read() as session:
                told = views.detail(session, project, erasure.id)
    _show(told, as_json)
    if told["state"] == "refused":
        raise typer.Exit(1)


def erasures(
    erasure: Annotated[uuid.UUID | None, typer.Argument(help="Show this one's receipt.")] = None,
    as_json: AsJson = False,
) -> None:
    """List erasures, newest first, or show one's receipt."""
    from engine.queries import erasures as views
    from services.cli import output
    from services.cli.reach import project_id, reached

    with reached() as wiring, wiring.database.read() as session:
        if erasure is not None:
            _show(views.detail(session, project_id(session), erasure), as_json)
            return
        rows = views.listing(session, project_id(session), limit=1000)
    columns = ["id", "scope_kind", "state", "step", "requested_by", "requested_at", "completed_at"]
    output.show(rows, columns, "Erasures", as_json)


@holds.command("place")
def place(
    why: Annotated[str, typer.Option(help="Why it has to stay.")],
    vehicle: Vehicle = None,
    drive: Drive = None,
    clip: Clip = None,
    as_json: AsJson = False,
) -> None:
    """Hold a vehicle, a drive or a clip, and all that belongs to it."""
    from engine.queries import erasures as views
    from engine.stages.holds import place_hold
    from services.cli import output
    from services.cli.reach import project_id, reached

    target = _target(vehicle, drive, clip)
    with reached() as wiring, wiring.database.unit() as unit:
        project = project_id(unit.session)
        hold = place_hold(unit, project, target, why, ACTOR)
        told = views.hold(unit.session, project, hold.id)
        unit.commit()
    if as_json:
        output.print_json(told)
    else:
        output.out.print(f"{_named(target)} is held: hold {hold.id}", highlight=False, markup=False)


@holds.command("lift")
def lift(
    hold: Annotated[uuid.UUID, typer.Argument(help="The hold's id.")],
    why: Annotated[str, typer.Option(help="Why it may end.")],
) -> None:
    """Lift a hold: retention and erasure go on."""
    from engine.stages.holds import lift_hold
    from services.cli import output
    from services.cli.reach import project_id, reached

    with reached() as wiring, wiring.database.unit() as unit:
        lift_hold(unit, project_id(unit.session), hold, why, ACTOR)
        unit.commit()
    output.out.print(f"hold {hold} is lifted")


@holds.command("list")
def list_holds(
    every: Annotated[bool, typer.Option("--all", help="Also those that were lifted.")] = False, as_json: AsJson = False
) -> None:
    """List legal holds."""
    from engine.queries import erasures as views
    from services.cli import output
    from services.cli.reach import project_id, reached

    with reached() as wiring, wiring.database.read() as session:
        rows = views.holds(session, project_id(session), limit=1000, standing=None if every else True)
    columns = ["id", "scope_kind", "scope_id", "reason", "placed_by", "placed_at", "lifted_at"]
    output.show(rows, columns, "Legal holds", as_json)


@retention.command("show")
def show_retention(as_json: AsJson = False) -> None:
    """Say how long clips are kept."""
    from engine.queries import erasures as views
    from services.cli import output
    from services.cli.reach import project_id, reached

    with reached() as wiring, wiring.database.read() as session:
        told = views.retention(session, project_id(session))
    if as_json:
        output.print_json(told)
    else:
        output.out.print(_kept(told["keep_days"]), highlight=False)


@retention.command("set")
def set_days(
    days: Annotated[int | None, typer.Argument(min=1, max=36_500, help="Days after a clip was received.")] = None,
    forever: Annotated[bool, typer.Option("--forever", help="No limit of the project's own.")] = False,
) -> None:
    """Keep clips for so many days at most: what is older is erased within the hour."""
    from engine.stages.retention import set_retention
    from services.cli import output
    from services.cli.reach import project_id, reached

    if (days is None) != forever:
        raise typer.BadParameter("give a number of days, or --forever")
    with reached() as wiring, wiring.database.unit() as unit:
        set_retention(unit, project_id(unit.session), days, ACTOR)
        unit.commit()
    output.out.print(_kept(days), highlight=False)


def _target(vehicle: str | None, drive: str | None, clip: uuid.UUID | None) -> Target:
    from engine.domain.erasure import Target

    target = Target(vehicle, drive, clip)
    _ = target.kind  # raises Invalid
    return target


def _named(target: Target) -> str:
    return f"{target.kind} {target.clip or target.drive or target.vehicle}"


def _kept(days: int | None) -> str:
    own = "a clip's own retain_until ends it sooner"
    return f"clips are kept for {days} days; {own}" if days else f"the project has no limit; {own}"


def _await(wiring: Wiring, project: uuid.UUID, erasure_id: uuid.UUID) -> dict[str, Any]:
    """Watch an erasure until it is over."""
    from engine.queries import erasures as views
    from services.cli import output

    with output.err.status("waiting for a labeling worker") as status:
        while True:
            with wiring.database.read() as session:
                told = views.detail(session, project, erasure_id)
            if told["state"] in ("done", "refused"):
                return told
            if told["state"] == "running":
                status.update(f"erasing: {told['step']}")
            time.sleep(0.5)


def _show(told: dict[str, Any], as_json: bool) -> None:
    from services.cli import output

    if as_json:
        output.print_json(told)
        return
    receipt = told["receipt"] or {}
    rows: list[dict[str, Any]] = [
        {"": "erasure", "what": told["id"]},
        {"": "of", "what": f"{told['scope_kind']} {told['scope_id']}"},
        {
            "": "state",
            "what": told["refusal"] or (f"{told['state']}, {told['step']}" if told["step"] else told["state"]),
        },
        {"": "asked for", "what": f"by {told['requested_by']}, {told['reason'] or 'no reason given'}"},
        {"": "clips", "what": receipt.get("clips", "not looked for yet")},
        {"": "removed", "what": dict(sorted(receipt.get("removed", {}).items())) or "nothing yet"},
    ]
    for kind, name in (("dataset_versions", "number"), ("golden_sets", "version"), ("model_versions", "number")):
        for used in receipt.get("used_by", {}).get(kind, []):
            where = used.get("line") or used.get("name")
            how = used.get("through") or f"{used['subjects']} subjects of it"
            rows.append({"": f"was used by {kind.replace('_', ' ')[:-1]}", "what": f"{where} {used[name]}: {how}"})
    output.show(rows, ["", "what"], "Receipt", False)
