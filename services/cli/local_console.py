"""What `longtail up` and the demos say while services start and when they are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.cli.output import err, out

if TYPE_CHECKING:
    from services.local.stack import LocalStack
    from services.local.supervisor import Event

_STYLE = {"ready": "green", "exited": "red", "restarting": "yellow"}


def print_event(event: Event) -> None:
    """One line for what a role did."""
    seconds = f" {event.seconds:.1f} s" if event.seconds else ""
    style = _STYLE.get(event.kind, "dim")
    err.print(f"  [{style}]{event.kind:<10}[/] {event.role}{seconds} [dim]{event.detail}[/]", highlight=False)


def print_watch(stack: LocalStack) -> None:
    """Where a demo can be watched while it runs."""
    state = stack.state
    err.print(f"\nWatch it at {state.api_url}, signed in with {state.admin_token}", highlight=False, soft_wrap=True)


def announce(stack: LocalStack) -> None:
    """Where to look."""
    state = stack.state
    out.print()
    out.print(f"  Pages and API   [link={state.api_url}]{state.api_url}[/]", highlight=False)
    out.print(f"                  sign in with {state.admin_token}", highlight=False, soft_wrap=True)
    if state.label_studio_url:
        out.print(f"  Label Studio    {state.label_studio_url}", highlight=False)
    if state.label_studio_email:
        out.print(f"                  {state.label_studio_email} / {state.label_studio_password}", highlight=False)
    out.print(f"  Logs            {state.logs}", highlight=False)
    out.print("\n  Ctrl-C stops everything; the data stays.", style="dim", highlight=False)
