"""`longtail devices` and `longtail tokens`: who may send, and who may do what."""

from __future__ import annotations

import uuid
from typing import Annotated

import typer

devices = typer.Typer(help="Keys with which vehicles send clips.", no_args_is_help=True)
tokens = typer.Typer(help="Tokens for people and services, each with its scopes.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ACTOR = "cli"


@devices.command("add")
def add_device(
    name: Annotated[str, typer.Argument(help="The device's name, such as gateway-3.")],
    vehicle: Annotated[list[str] | None, typer.Option(help="A vehicle that it may send for; repeat it.")] = None,
    any_vehicle: Annotated[bool, typer.Option(help="It may send for any vehicle of the project.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a device's key and show it once."""
    from engine.stages import access
    from services.cli.reach import ensured_project_id, reached

    with reached() as wiring, wiring.database.unit() as unit:
        device, secret = access.make_device(
            unit, ensured_project_id(unit.session), name, vehicle or [], any_vehicle, ACTOR
        )
        unit.commit()
    _show_secret(device.id, name, secret, as_json)


@devices.command("list")
def list_devices(as_json: AsJson = False) -> None:
    """List devices."""
    from engine.queries import access
    from services.cli import output
    from services.cli.reach import project_id, reached

    with reached() as wiring, wiring.database.read() as session:
        rows = access.devices(session, project_id(session), limit=1000)
    output.show(rows, ["id", "name", "any_vehicle", "vehicles", "last_seen_at", "revoked_at"], "Devices", as_json)


@devices.command("revoke")
def revoke_device(device: Annotated[uuid.UUID, typer.Argument(help="The device's id.")]) -> None:
    """Make a device's key open nothing any more."""
    from engine.stages import access
    from services.cli import output
    from services.cli.reach import ensured_project_id, reached

    with reached() as wiring, wiring.database.unit() as unit:
        access.revoke_device(unit, ensured_project_id(unit.session), device, ACTOR)
        unit.commit()
    output.out.print(f"device {device} is revoked")


@tokens.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="Whose it is, such as ada or ci.")],
    scope: Annotated[list[str], typer.Option(help="What it may do, such as clips:read or admin; repeat it.")],
    as_json: AsJson = False,
) -> None:
    """Make a token and show it once."""
    from engine.stages import access
    from services.cli.reach import ensured_project_id, reached

    with reached() as wiring, wiring.database.unit() as unit:
        token, secret = access.make_token(unit, ensured_project_id(unit.session), name, scope, None, ACTOR)
        unit.commit()
    _show_secret(token.id, name, secret, as_json)


@tokens.command("list")
def list_tokens(as_json: AsJson = False) -> None:
    """List tokens."""
    from engine.queries import access
    from services.cli import output
    from services.cli.reach import project_id, reached

    with reached() as wiring, wiring.database.read() as session:
        rows = access.tokens(session, project_id(session), limit=1000)
    output.show(rows, ["id", "name", "scopes", "created_at", "expires_at", "revoked_at"], "Tokens", as_json)


@tokens.command("revoke")
def revoke_token(token: Annotated[uuid.UUID, typer.Argument(help="The token's id.")]) -> None:
    """Make a token open nothing any more."""
    from engine.stages import access
    from services.cli import output
    from services.cli.reach import ensured_project_id, reached

    with reached() as wiring, wiring.database.unit() as unit:
        access.revoke_token(unit, ensured_project_id(unit.session), token, ACTOR)
        unit.commit()
    output.out.print(f"token {token} is revoked")


def _show_secret(row_id: uuid.UUID, name: str, secret: str, as_json: bool) -> None:
    from services.cli import output

    if as_json:
        output.print_json({"id": row_id, "name": name, "secret": secret})
        return
    output.out.print(f"{name}: [bold]{secret}[/bold]", highlight=False, soft_wrap=True)
    output.out.print("It is shown this once and is not kept: store it now.", style="yellow")
