"""Progress that a person can follow: one line that moves while a stage works, one that stays when it is done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars


class HasSeconds(Protocol):
    """What keeps the seconds of its stages."""

    seconds: dict[str, float]


class Stage:
    """One stage under way."""

    def __init__(self, bars: Bars | None, what: str) -> None:
        self._bars = bars
        self._task = bars.add_task(what, total=None) if bars else None
        self.done = 0
        self.total = 0

    def at(self, done: int, total: int) -> None:
        """So many of so many are done."""
        self.done, self.total = done, total
        if self._bars is not None and self._task is not None and total:
            self._bars.update(self._task, completed=done, total=total)


class Progress:
    """Shows stages on a terminal; elsewhere it writes a line when a stage begins and one when it ends."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._inside = False

    def say(self, text: str, style: str = "") -> None:
        self.console.print(text, style=style, highlight=False)

    @contextmanager
    def stage(self, turn: HasSeconds, name: str, what: str) -> Iterator[Stage]:
        """A stage of a turn; its seconds are added to the turn's, also when it fails."""
        started = time.monotonic()
        moving = self.console.is_terminal and not self._inside
        bars = (
            Bars(
                SpinnerColumn(),
                TextColumn("  {task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=self.console,
                transient=True,
            )
            if moving
            else None
        )
        stage = Stage(bars, what)
        outer, self._inside = self._inside, True
        try:
            if bars is None:
                yield stage
            else:
                with bars:
                    yield stage
        finally:
            self._inside = outer
            seconds = time.monotonic() - started
            turn.seconds[name] = turn.seconds.get(name, 0.0) + seconds
        count = f"{stage.done} " if stage.done > 1 else ""
        self.say(f"  [green]✓[/] {name:<8} {what} [dim]{count}in {seconds:.1f} s[/]")
