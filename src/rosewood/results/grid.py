"""A table of text, for the terminal, for Markdown and for LaTeX; and plain values as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.markup import escape
from rich.table import Table
from rich.text import Text

_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "·": r"$\cdot$",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
}


@dataclass(frozen=True)
class Grid:
    """Cells of text; a line break inside a cell is one on the terminal and a space elsewhere."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    texts: int = 1
    """How many columns, from the left, hold text and not figures."""


@dataclass(frozen=True)
class Folded:
    """A grid for the terminal: columns that do not fit its width go into further tables below the first."""

    grid: Grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table | Text]:
        room = options.max_width // (self.grid.texts + 2)
        for number, part in enumerate(fold(_with_broken_names(self.grid, room), options.max_width)):
            yield _to_rich(part, title=None if number else self.grid.title)
        if self.grid.caption:
            yield Text(self.grid.caption, style="dim italic")


def broken(text: str, width: int) -> str:
    """A text on as many lines as it takes, broken after a slash, a hyphen or a space where it is wider than that."""
    lines = [""]
    for piece in re.split(r"(?<=[/ -])", text):
        if lines[-1] and cell_len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def _with_broken_names(grid: Grid, width: int) -> Grid:
    """The same with headings and texts, which may be the names of runs, on several lines if they are long."""

    def short(cell: str) -> str:
        return "\n".join(broken(line, width) for line in cell.split("\n"))

    rows = [[*map(short, row[: grid.texts]), *row[grid.texts :]] for row in grid.rows]
    return replace(grid, header=[short(name) for name in grid.header], rows=rows)


def fold(grid: Grid, width: int) -> list[Grid]:
    """The grid cut between columns into grids of at most that width, each with all columns of text in front."""
    widths = [_width(grid, place) for place in range(len(grid.header))]
    room = width - 1 - sum(widths[: grid.texts])
    parts: list[list[int]] = [[]]
    left = room
    for place in range(grid.texts, len(widths)):
        if widths[place] > left and parts[-1]:
            parts.append([])
            left = room
        parts[-1].append(place)
        left -= widths[place]
    return [_of_columns(grid, [*range(grid.texts), *part]) for part in parts]


def _of_columns(grid: Grid, places: Sequence[int]) -> Grid:
    rows = [[row[place] for place in places] for row in grid.rows]
    return replace(grid, header=[grid.header[place] for place in places], rows=rows)


def _width(grid: Grid, place: int) -> int:
    """The width of a column with its rule and spaces."""
    cells = [grid.header[place], *(row[place] for row in grid.rows)]
    return 3 + max(cell_len(line) for cell in cells for line in cell.split("\n"))


def _to_rich(grid: Grid, title: str | None) -> Table:
    table = Table(title=title and escape(title))
    for place, name in enumerate(grid.header):
        table.add_column(escape(name), justify="left" if place < grid.texts else "right", overflow="fold")
    for row in grid.rows:
        table.add_row(*map(escape, row))
    return table


_PAGE_WIDTH = 120  # in characters, where the words of a header may wrap: about what a page shows without scrolling


def to_markdown(grid: Grid) -> str:
    """A pipe table with its title and caption; columns that do not fit a page go into further tables below."""
    tables = ["\n".join(_pipe_table(part)) for part in fold(grid, _PAGE_WIDTH)]
    return "\n\n".join([f"**{grid.title}**", *tables, *([grid.caption] if grid.caption else [])])


def _pipe_table(grid: Grid) -> Iterator[str]:
    yield _piped(grid.header)
    yield _piped(["---" if place < grid.texts else "---:" for place in range(len(grid.header))])
    yield from map(_piped, grid.rows)


def to_latex(grid: Grid) -> str:
    """A table with the rules of the package booktabs."""
    columns = "l" * grid.texts + "r" * (len(grid.header) - grid.texts)
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_escaped(' '.join([grid.title + '.', grid.caption]).strip())}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            _ampersands(grid.header),
            r"\midrule",
            *map(_ampersands, grid.rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def to_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Values as they are, a line for each row."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


FORMATS: dict[str, Callable[[Grid], str]] = {"markdown": to_markdown, "latex": to_latex}


def _flat(cell: str) -> str:
    return " ".join(cell.split())


def _piped(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_flat(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _ampersands(cells: Sequence[str]) -> str:
    return " & ".join(_escaped(_flat(cell)) for cell in cells) + r" \\"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
