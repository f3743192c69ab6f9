"""How every benchmark ends: a table for people, and one line of JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def conclude(
    benchmark: str,
    ratios: Mapping[str, float],
    at_least: Mapping[str, float],
    at_most: Mapping[str, float] | None = None,
) -> None:
    """Print the last line. Every name of a target is one of `ratios`; `met` says whether all of them are kept."""
    at_most = at_most or {}
    met = all(ratios[name] >= target for name, target in at_least.items())
    met = met and all(ratios[name] <= target for name, target in at_most.items())
    rounded = {name: round(value, 3) for name, value in ratios.items()}
    targets = {**at_least, **at_most}
    print(json.dumps({"benchmark": benchmark, "ratios": rounded, "targets": targets, "met": met}), flush=True)
