"""A live table of trials on a terminal; a line for each elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from rosewood.experiments.tuning.outcome import Tried, best_of, tried
from rosewood.results.guessing import MEANING, marked

if TYPE_CHECKING:
    from optuna import Study

COLOURS = {"complete": "green", "pruned": "yellow", "failed": "red", "running": "cyan"}
_LINES_AROUND = 10  # of the table's frame, of the training's progress, and of the terminal


class Board:
    """Shows what is in the study, also from other workers."""

    def __init__(self, study: Study, wanted: int, console: Console) -> None:
        self._study, self._wanted, self._console = study, wanted, console
        self._live: Live | None = None
        self._said: set[int] = set()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show it as long as this lasts."""
        if not self._console.is_terminal:
            self._said = {each.number for each in tried(self._study)}
            yield
            return
        with Live(self.table(), console=self._console, auto_refresh=False, transient=True) as self._live:
            yield

    def refresh(self) -> None:
        """Something has happened."""
        if self._live is not None:
            self._live.update(self.table(), refresh=True)
            return
        trials = tried(self._study)
        for each in trials:
            if each.number not in self._said:
                self._said.add(each.number)
                self._console.print(self._line(each, best_of(trials)), markup=False, highlight=False, soft_wrap=True)

    def _line(self, each: Tried, best: Tried | None) -> str:
        end = f"; best {percent(best.value)} (trial {best.number})" if best is not None else ""
        what = each.error if each.state == "failed" else percent(each.value)
        return f"trial {each.number} of {self._wanted}: {each.state} {what}  {words(each.settings)}{end}"

    def table(self) -> Table:
        """All trials, or the last ones that fit the terminal; the best is in bold."""
        from rosewood.experiments.tuning.study import place_of, under_way

        trials, everything = tried(self._study), self._study.get_trials(deepcopy=False)
        running = [
            Tried(
                place_of(trial.number, everything) + 1,
                "running",
                trial.intermediate_values[max(trial.intermediate_values)] if trial.intermediate_values else None,
                None,
                None,
                trial.params,
                "",
            )
            for trial in under_way(self._study)
        ]
        return trial_table([*trials, *running], f"{len(trials)} of {self._wanted} trials", self._room())

    def _room(self) -> int:
        return max(3, self._console.height - _LINES_AROUND)


def trial_table(trials: Sequence[Tried], caption: str, room: int | None = None) -> Table:
    """A row for each trial."""
    best = best_of(trials)
    paths = list(dict.fromkeys(path for each in trials for path in each.settings))
    if any(each.guessing for each in trials):
        caption = f"{caption}. {MEANING}"
    table = Table(caption=caption, caption_justify="left")
    table.add_column("trial", justify="right")
    table.add_column("state")
    for column in ("value", "clean", "robust"):
        table.add_column(column, justify="right")
    for path in paths:
        table.add_column(escape(path.removeprefix("training.")), justify="right")
    for each in trials if room is None else trials[-room:]:
        figures = [percent(figure) for figure in (each.value, each.clean, each.robust)]
        figures[1] = marked(figures[1], each.guessing)
        values = [shown(each.settings.get(path)) for path in paths]
        style = "bold" if best is not None and each.number == best.number else ""
        table.add_row(
            str(each.number), f"[{COLOURS[each.state]}]{each.state}[/]", *figures, *map(escape, values), style=style
        )
    return table


def percent(value: float | None) -> str:
    """An accuracy."""
    return "" if value is None else f"{value:.1%}"


def shown(value: Any) -> str:
    """A setting, to four digits."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def words(settings: Any) -> str:
    """Settings in a line."""
    return " ".join(f"{path.removeprefix('training.')}={shown(value)}" for path, value in settings.items())
