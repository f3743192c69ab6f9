"""What commands show: tables for people, JSON for machines, and one line for an error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

PIPE_WIDTH = 120  # a file or a pipe has no width of its own: one that tables fit into

out = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
err = Console(stderr=True, width=None if sys.stderr.isatty() else PIPE_WIDTH)


def show(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str, as_json: bool) -> None:
    """A table of these columns, or all of the rows as JSON."""
    if as_json:
        print_json(list(rows))
        return
    if not rows:
        out.print(f"{title}: none", highlight=False)
        return
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        narrow = column in ("id", "clip") or column.endswith("_at")
        table.add_column(column.replace("_", " "), overflow="fold", no_wrap=narrow)
    for row in rows:
        table.add_row(*[_cell(row.get(column)) for column in columns])
    out.print(table)


def print_json(document: Any) -> None:
    """The document alone on standard output, for a machine."""
    sys.stdout.write(json.dumps(document, default=str, indent=2) + "\n")
    sys.stdout.flush()


def show_status(document: Mapping[str, Any]) -> None:
    """The loop at a glance."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name in ("clips", "frames", "queue", "tasks", "labels", "datasets", "runs", "gate"):
        more = f", {document['golden_clips']} of them golden" if name == "clips" and document["golden_clips"] else ""
        table.add_row(name, (_cell(document[name]) or "none") + more)
    for line in document["lines"]:
        champion = f"champion v{line['champion']}" if line["champion"] else "no champion yet"
        running = line["running"]
        progress = running["progress"] if running else {}
        training = f", training {progress.get('step', 0)} of {progress.get('steps', '?')} steps" if running else ""
        table.add_row(f"line {line['name']}", f"{champion}, {line['versions']} versions{training}")
    for job in document["jobs"]:
        if job["states"]:
            table.add_row(f"{job['kind']} jobs", _cell(job["states"]))
    out.print(table)
    for stuck in document["stuck"]:
        out.print(f"[yellow]stuck:[/] {escape(stuck['what'])}. {escape(stuck['do'])}", highlight=False)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_cell(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_cell(item) for item in value)
    return str(value)


@contextmanager
def report_errors() -> Iterator[None]:
    """Turn an error that a person can mend into one line and exit status 1; Ctrl-C into 130."""
    from services.cli.errors import mendable

    try:
        yield
    except KeyboardInterrupt:
        err.print("stopped", style="yellow")
        raise SystemExit(130) from None
    except Exception as error:
        told = mendable(error)
        if told is None:
            raise
        err.print(f"[red]error:[/red] {escape(told)}", highlight=False, soft_wrap=True)
        raise SystemExit(1) from None
