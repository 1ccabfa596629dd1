"""A table of text, for the terminal, for Markdown and for LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "·": r"$\cdot$",
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


def to_rich(grid: Grid) -> Table:
    """For the terminal."""
    table = Table(title=grid.title, caption=escape(grid.caption) or None)
    for place, name in enumerate(grid.header):
        table.add_column(escape(name), justify="left" if place < grid.texts else "right", no_wrap=place == 0)
    for row in grid.rows:
        table.add_row(*map(escape, row))
    return table


def to_markdown(grid: Grid) -> str:
    """A pipe table with its title and caption."""
    lines = [
        _piped(grid.header),
        _piped(["---" if place < grid.texts else "---:" for place in range(len(grid.header))]),
        *map(_piped, grid.rows),
    ]
    return "\n".join([f"**{grid.title}**", "", *lines, *(["", grid.caption] if grid.caption else [])])


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


FORMATS: dict[str, Callable[[Grid], str]] = {"markdown": to_markdown, "latex": to_latex}


def _flat(cell: str) -> str:
    return " ".join(cell.split())


def _piped(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_flat(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _ampersands(cells: Sequence[str]) -> str:
    return " & ".join(_escaped(_flat(cell)) for cell in cells) + r" \\"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
