"""rosewood list: what there is to choose from; of lexicons, how much they let an attacker choose from."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rosewood.cli import app
from rosewood.errors import AbsentError, DataError, closest

if TYPE_CHECKING:
    from rosewood.recipe import Recipe
    from rosewood.words.lexicon import Lexicon, Pair


lists = typer.Typer(
    help="List recipes, attacks, protocols, defences, lexicons, tasks, suites or models.", no_args_is_help=True
)
app.add_typer(lists, name="list")

_PROSE = 28  # columns of the terminal in which a sentence still reads well


@dataclass
class WideTable:
    """A table where the terminal is wide enough; elsewhere a paragraph for each row, so that nothing is cut.

    In columns of `prose` sentences may wrap; the others hold names and figures, which stay whole.
    """

    title: str
    header: Sequence[str]
    prose: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    caption: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        several_lines = any("\n" in cell for row in self.rows for cell in row)
        table = Table(title=self.title, caption=escape(self.caption) or None, show_lines=several_lines)
        for name in self.header:
            table.add_column(name, no_wrap=name not in self.prose)
        for row in self.rows:
            table.add_row(*map(escape, row))
        if sum(map(self._width, range(len(self.header)))) < options.max_width:
            yield table
            return
        yield Text(self.title, style="italic")
        for first, *others in self.rows:
            yield Text(first, style="bold")
            facts = Table.grid(padding=(0, 2))
            facts.add_column(no_wrap=True, style="dim")
            facts.add_column(overflow="fold")
            for name, value in zip(self.header[1:], others, strict=True):
                if value:
                    facts.add_row(name, escape(value))
            yield Padding(facts, (0, 0, 0, 2))
        if self.caption:
            yield Text(self.caption, style="dim italic")

    def _width(self, place: int) -> int:
        """What a column needs, with its rule and spaces."""
        cells = [self.header[place], *(row[place] for row in self.rows)]
        longest = max(cell_len(line) for cell in cells for line in cell.split("\n"))
        return 3 + (min(longest, _PROSE) if self.header[place] in self.prose else longest)


@lists.command()
def recipes() -> None:
    """The methods: their choice on the four axes, what a step costs, and where they come from.

    Cost counts passes: F a forward, X a backward to the inputs only, B a full backward. Plain fine-tuning is F+B.
    """
    from rosewood.cli.explain import stand_ins

    with stand_ins():
        Console().print(_recipes())


def _recipes() -> WideTable:
    from rosewood.recipe import load_recipe, recipe_names

    header = ("recipe", "objective", "perturbation", "selection", "anchors", "cost", "memory", "from")
    table = WideTable("Recipes", header, ("memory",), caption="F: forward, X: backward to the inputs, B: full backward")
    for name in recipe_names():
        recipe = load_recipe(name, check_training=False)
        stages = recipe.all_stages()
        perturbation = recipe.perturbation.name if recipe.perturbation else "-"
        selection = ", then ".join(dict.fromkeys(stage.selection.name for stage in stages))
        anchors = ", ".join(anchor.name for anchor in recipe.anchors) or "-"
        cost, memory = str(recipe.cost()), recipe.memory() or "-"
        parts = (recipe.objective.name, perturbation, selection, anchors)
        table.rows.append((name, *parts, cost, memory, _paper(recipe)))
    return table


def _paper(recipe: Recipe) -> str:
    """First author and year; a citation starts with the authors, or with what a combination is made of."""
    citation = recipe.citation
    if citation.startswith("Made of:"):
        return "-"
    author, year = re.match(r"\w*", citation), re.search(r"\b(19|20)\d\d\b", citation)
    return f"{author.group()} {year.group()}" if author and year else "-"


@lists.command()
def attacks() -> None:
    """The attacks, what each needs, and its settings for `rosewood attack --set`."""
    from rosewood.cli.explain import stand_ins

    with stand_ins():
        Console().print(_attacks())


def _attacks() -> WideTable:
    from rosewood.attacks import TEXTATTACK
    from rosewood.attacks.runner.api import choose_attack
    from rosewood.config.registry import component_names

    caption = f"{TEXTATTACK}RECIPE runs a recipe of TextAttack, where that is installed."
    table = WideTable(
        "Attacks", ("attack", "what", "needs", "settings"), ("what", "needs", "settings"), caption=caption
    )
    for name in component_names("attack"):
        attack = choose_attack(name)
        settings = ", ".join(f"{key}={json.dumps(value)}" for key, value in attack.settings().items())
        needs = ", ".join(attack.needs()).replace("_", " ") or "-"
        table.rows.append((name, type(attack).__doc__ or "", needs, settings))
    return table


@lists.command()
def protocols() -> None:
    """How papers attack, for `rosewood attack --protocol`: settings, and where Rosewood departs from the paper."""
    from rosewood.attacks.runner.protocols import load_protocol, protocol_names

    header = ("protocol", "what", "attacks", "tasks", "paper", "deviations")
    table = WideTable("Protocols", header, ("what", "attacks", "tasks", "paper", "deviations"))
    for name in protocol_names():
        one = load_protocol(name)
        tasks = ", ".join(one.tasks) or "any"
        table.rows.append((name, one.title, ", ".join(one.attacks), tasks, one.citation, "\n".join(one.deviations)))
    Console().print(table)


@lists.command()
def defences() -> None:
    """The defences for `rosewood wrap --with`, what each needs, and its settings for `--set`."""
    from rosewood.config.registry import component_names
    from rosewood.defences.runner.wrap import kinds_of
    from rosewood.recipe import plain_settings

    header = ("defence", "what", "passes", "needs", "settings")
    caption = "Passes of the network for one text, with the settings shown."
    table = WideTable("Defences", header, ("what", "needs", "settings"), caption=caption)
    for name in component_names("defence"):
        for title, defence in kinds_of(name).items():
            settings = ", ".join(f"{key}={json.dumps(value)}" for key, value in plain_settings(defence).items())
            what = type(defence).__doc__ or ""
            table.rows.append((title, what, f"{defence.forwards():g}", ", ".join(defence.needs()) or "-", settings))
    Console().print(table)


@lists.command()
def tasks() -> None:
    """The tasks, their labels, and the sets each is trained and evaluated on."""
    from rosewood.data.tasks import load_task, task_names

    table = WideTable("Tasks", ("name", "what", "labels", "sets", "from"), ("what", "labels", "sets"))
    for name in task_names():
        task = load_task(name)
        places = ("embedded", "folder", "hub")
        found = [place for place in places if any(getattr(split, place) for split in task.splits.values())]
        table.rows.append((name, task.title, ", ".join(task.labels), ", ".join(task.splits), ", ".join(found)))
    Console().print(table)


@lists.command()
def suites() -> None:
    """The suites for `rosewood evaluate --suite`, and the sets of each."""
    from rosewood.data.suites import load_suite, suite_names

    table = WideTable("Suites", ("name", "what", "labels", "sets"), ("what", "labels", "sets"))
    for name in suite_names():
        suite = load_suite(name)
        roles = dict.fromkeys(each.role for each in suite.sets.values())
        sets = [
            f"{role}: {', '.join(set_name for set_name, each in suite.sets.items() if each.role == role)}"
            for role in roles
        ]
        if suite.noise:
            sets.append(f"noise: {', '.join(suite.noise.kinds)}")
        table.rows.append((name, suite.title, ", ".join(suite.labels) or "those of the task", "\n".join(sets)))
    Console().print(table)


@lists.command()
def models() -> None:
    """Models with a short name; any folder or Hub name works too."""
    from rosewood.cli.explain import stand_ins

    with stand_ins():
        Console().print(_models())


def _models() -> WideTable:
    from rosewood.models.names import models as known

    header = ("name", "title", "million parameters", "from", "note")
    installs = [f"{name}: {model.install}" for name, model in known().items() if model.install]
    table = WideTable("Models", header, ("note",), caption="\n".join(installs))
    for name, model in known().items():
        place = "Hub" if model.needs_hub else "package"
        table.rows.append((name, model.title, f"{model.millions:g}", place, model.note))
    return table


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
    geometric mean of the number of texts. wordnet is built when first used, which takes half a minute.
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
