"""rosewood list lexicons: which words may replace which, and how much that lets an attacker choose from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from rosewood.cli.listing import lists
from rosewood.errors import AbsentError, DataError, closest

if TYPE_CHECKING:
    from rosewood.words.lexicon import Lexicon, Pair


@lists.command()
def lexicons(
    names: list[str] = typer.Argument(None, help="Lexicons, or JSON files of some.", show_default="all"),
    task: str | None = typer.Option(None, help="Also count the texts that an attacker can choose from on this task."),
    split: str = typer.Option("test", help="The split of the task."),
    field: str | None = typer.Option(None, help="The text of a pair that changes.", show_default="the last"),
    max_words: int | None = typer.Option(None, min=1, help="Count only the first words of a text.", show_default="all"),
    exact_case: bool = typer.Option(False, "--exact-case", help="Look words up as written, as some papers' code does."),
    data_dir: Path | None = typer.Option(None, envvar="ROSEWOOD_DATA", help="Folder with word lists and tasks' files."),
) -> None:
    """The lexicons for `rosewood attack --lexicon`: their size, and how many antonyms are among their pairs.

    With --task also the attack space: words that have substitutes, choices at such a word, itself included, and the
    geometric mean of the number of texts. wordnet and roget are built when first used, which takes a minute or two.
    """
    from transformers.utils.logging import disable_progress_bar

    from rosewood.words.lexicon import Lexicon, antonyms, lexicon_names

    disable_progress_bar()  # transformers' bar for loading says nothing at this size
    texts = _texts(task, split, field, data_dir) if task else None
    opposites = antonyms(data_dir)
    table = Table(title=f"Lexicons on {task} {split}" if task else "Lexicons", caption=_caption(task))
    table.add_column("lexicon", no_wrap=True)
    for column in ("words", "pairs", "antonyms", *(("words a text", "choices", "texts") if task else ())):
        table.add_column(column, justify="right")
    absent = []
    for name in names or lexicon_names():
        try:
            lexicon = Lexicon.named(name, data_dir)
        except AbsentError as error:
            absent.append(f"{name} is not available: {error}")
            continue
        space = [] if texts is None else _space(lexicon, texts, max_words, exact_case)
        table.add_row(lexicon.name, *_sizes(lexicon, opposites), *space)
    Console().print(table)
    for line in absent:
        Console(soft_wrap=True, highlight=False).print(line, markup=False)


def _caption(task: str | None) -> str:
    antonyms = "Antonyms: pairs in the antonym files of the data folder; wordnet and roget then leave them out."
    return f"{antonyms} Texts: choices ^ words, as the geometric mean." if task else antonyms


def _texts(name: str, split: str, field: str | None, data_dir: Path | None) -> list[str]:
    from rosewood.data.loading import load_split
    from rosewood.data.tasks import load_task

    task = load_task(name)
    if field is not None and field not in task.text:
        raise DataError(f"task {task.name} has no text {field!r}: {closest(field, list(task.text))}")
    return list(load_split(task, split, data_dir, multi_label=True)[field or task.text[-1]])


def _sizes(lexicon: Lexicon, opposites: frozenset[Pair]) -> list[str]:
    pairs = sum(map(len, lexicon.entries.values()))
    bad = lexicon.left_out + sum(pair in opposites for pair in lexicon.pairs())
    share = f"{bad:,} ({bad / max(1, pairs + lexicon.left_out):.2%})" if opposites else "-"
    return [f"{sum(map(bool, lexicon.entries.values())):,}", f"{pairs:,}", share]


def _space(lexicon: Lexicon, texts: list[str], max_words: int | None, exact_case: bool) -> list[str]:
    from rich.progress import track

    from rosewood.words.constraints import Substituting, attack_space
    from rosewood.words.text import Words

    substituting = Substituting(lexicon, exact_case)
    read = track(texts, f"counting with {lexicon.name}", console=Console(stderr=True), transient=True)
    space = attack_space(substituting.surface(Words.split(text).words[:max_words]) for text in read)
    return [f"{space.words:.1f}", f"{space.choices:.2f}", f"{space.geometric_choices:.2f}^{space.words:.1f}"]
