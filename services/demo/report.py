"""What a demo ends with: a table a turn for people, and one line of JSON for machines."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from services.demo.turns import Turn
from services.local.stack import LocalStack


def print_turn(console: Console, turn: Turn) -> None:
    """One turn: what came in, what was chosen and why, each head's metric, the verdict, where the time went."""
    console.print()
    title = f"{turn.name}: dataset v{turn.dataset} → model v{turn.challenger}"
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold", pad_edge=False)
    for column in ("head", "metric", "champion", "challenger", "better by, 90% interval", "had to show", "held"):
        table.add_column(column, justify="right" if column in ("champion", "challenger") else "left")
    for head, row in turn.metrics.items():
        table.add_row(*_cells(head, row, head in turn.targets))
    console.print(f"  clips in {turn.clips}   pool {turn.frames} frames   " + _chosen(turn), highlight=False)
    console.print(f"  labelled {turn.labels} frames, {turn.skipped} skipped or unusable", highlight=False)
    console.print(table)
    if turn.targets:
        console.print("  ★ declared before the training: it has to get better", style="dim")
    passed = turn.verdict == "passed"
    verdict = "[bold green]promoted[/]" if passed else "[bold red]refused[/]"
    scope = f" ({turn.scope})" if turn.scope != "golden set" else ""
    console.print(f"  {verdict}{scope}", highlight=False)
    for reason in turn.why[:4]:
        console.print(f"    · {reason}", highlight=False, style="dim")
    console.print("  seconds: " + _seconds(turn.seconds), highlight=False, style="dim")


def _chosen(turn: Turn) -> str:
    if not turn.chosen + turn.control:
        return "labels imported"
    why = ", ".join(f"{head} {count}" for head, count in turn.reasons.items())
    return f"chosen {turn.chosen} ({why}) + {turn.control} at random"


def _cells(head: str, row: Mapping[str, Any], target: bool) -> list[str]:
    reference = f"{row['reference']:.3f}" + ("" if row["reference_name"] == "champion" else " (baseline)")
    better = f"{_difference(row):+.3f}  [{_signed(row['low'])}, {_signed(row['high'])}]"
    rule = {
        "superiority": "better",
        "non_inferiority": f"not worse by {-row['bound']:.3f}",
        "floor": "beats baseline",
    }.get(row["rule"], row["rule"])
    low = row["low"] if row["low"] is not None else -math.inf
    held = low >= row["bound"] if row["rule"] == "non_inferiority" else low > 0
    return [
        f"{head} ★" if target else head,
        row["metric"],
        reference,
        f"{row['challenger']:.3f}",
        better,
        rule,
        "[green]✓[/]" if held else "[red]✗[/]",
    ]


def _signed(bound: float | None) -> str:
    """A bound; there is none where too many resamples had nothing to measure."""
    return "–" if bound is None else f"{bound:+.3f}"


def _difference(row: Mapping[str, Any]) -> float:
    sign = -1.0 if row["metric"] in ("abs_rel", "angle") else 1.0
    return sign * float(row["challenger"] - row["reference"])


def _seconds(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{stage} {value:.1f}" for stage, value in seconds.items())


def print_where(console: Console, stack: LocalStack, command: str) -> None:
    """Where the result can be looked at again."""
    console.print(f"\nLook at it again with [bold]{command}[/], which starts all of this on the same data:")
    console.print(f"  pages and API   {stack.state.api_url}", highlight=False)
    console.print(f"                  sign in with {stack.state.admin_token}", highlight=False, soft_wrap=True)
    console.print(f"  Label Studio    {stack.state.label_studio_url}", highlight=False)


def last_line(turns: Sequence[Turn], spoiled_refused: bool | None, seconds: float, **more: Any) -> None:
    """The one line of JSON that ends a demo."""
    document: dict[str, Any] = {
        "turns": [turn.to_document() for turn in turns],
        "promoted": sum(turn.verdict == "passed" for turn in turns),
        "spoiled_refused": spoiled_refused,
        "seconds": round(seconds, 1),
        **more,
    }
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()
