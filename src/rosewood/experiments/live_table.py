"""A live table of all cells, while they are worked on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from rosewood.experiments.cell import Cell
from rosewood.experiments.engines.local import Event
from rosewood.experiments.status import Standing, accuracy, doing, standing

COLOURS = {"finished": "green", "failed": "red", "running": "yellow", "interrupted": "yellow", "waiting": "dim"}
_LINES_AROUND = 8  # of the table's frame, and of the terminal


class LiveTable:
    """Follows the events of an engine; what the table shows, it reads from the folders."""

    def __init__(self, cells: Sequence[Cell], output: Path, console: Console) -> None:
        self._cells, self._output, self._console = cells, output, console
        self._known: dict[str, Standing] = {}
        self._running: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    @contextmanager
    def shown(self) -> Iterator[Callable[[Event], None]]:
        """Show the table as long as this lasts; gives what to call for every event."""
        if not self._console.is_terminal:
            yield self._follow
            return
        with Live(get_renderable=self.table, console=self._console, refresh_per_second=1):
            yield self._follow

    def _follow(self, event: Event) -> None:
        name = event.folder.name
        if event.what == "started":
            self._running[name] = time.monotonic()
            if not self._console.is_terminal:
                self._console.print(f"{name}: started", markup=False)
            return
        self._seconds[name] = time.monotonic() - self._running.pop(name)
        if not self._console.is_terminal:
            found = self._standing(next(cell for cell in self._cells if cell.name == name))
            end = found.error or accuracy(found)
            self._console.print(f"{name}: {found.state}, {duration(self._seconds[name])}. {end}", markup=False)

    def _standing(self, cell: Cell) -> Standing:
        """A finished cell is read once."""
        found = self._known.get(cell.name) or standing(cell, self._output)
        if found.result is not None:
            self._known[cell.name] = found
        return found

    def table(self) -> Table:
        """All cells, or as many as fit the terminal, and a line that sums them up."""
        standings = [self._standing(cell) for cell in self._cells]
        states = ["running" if each.folder.name in self._running else each.state for each in standings]
        table = Table(title=None, caption=self._summary(states), caption_justify="left")
        for column in ("recipe", "task", "model", "seed", "state", "accuracy", "time"):
            table.add_column(column, justify="right" if column in ("seed", "accuracy", "time") else "left")
        shown = _shown(states, self._console.height - _LINES_AROUND)
        for place in shown:
            found, state = standings[place], states[place]
            cell, name = found.cell, found.folder.name
            what = doing(found) if state == "running" else state
            since = self._running.get(name)
            seconds = time.monotonic() - since if since is not None else self._seconds.get(name)
            spent = "" if seconds is None else duration(seconds)
            words = [cell.label, cell.task["name"], Path(cell.model).name, str(cell.seed)]
            table.add_row(*map(escape, words), f"[{COLOURS[state]}]{what}[/]", accuracy(found), spent)
        if len(shown) < len(standings):
            table.add_row(f"... and {len(standings) - len(shown)} more", style="dim")
        return table

    def _summary(self, states: Sequence[str]) -> str:
        counts = [f"{states.count(state)} {state}" for state in COLOURS if state in states]
        left = sum(state in ("waiting", "interrupted", "running") for state in states)
        if not self._seconds or not left:
            return ", ".join(counts)
        each = sum(self._seconds.values()) / len(self._seconds) / max(1, len(self._running))
        return f"{', '.join(counts)}; about {duration(each * left)} left"


def _shown(states: Sequence[str], room: int) -> list[int]:
    """The rows that fit, in order: those worked on and those that failed before the others."""
    if len(states) <= room:
        return list(range(len(states)))
    urgency = {"running": 0, "failed": 1, "interrupted": 2, "waiting": 3, "finished": 4}
    return sorted(sorted(range(len(states)), key=lambda place: urgency[states[place]])[: max(1, room)])


def duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    return str(timedelta(seconds=round(seconds)))
