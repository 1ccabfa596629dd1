"""The command line: a file for each command, or for a few that belong together.

Options of a command come from settings: a field of the settings is an option, and the command gets the settings as a
whole. What was given is checked before the libraries are imported, which takes seconds.
"""

from __future__ import annotations

import inspect
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, Literal, Union, cast, get_args, get_origin

import annotated_types
import typer
from pydantic.fields import FieldInfo
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from rosewood.config.settings import Settings, option_of
from rosewood.errors import RosewoodError, RunError
from rosewood.results.files import check_there

Command = Callable[..., None]


def options_of_settings(without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Give a command an option for each field of its parameters that are settings.

    Args:
        without: Fields that the command has other options for.

    Returns:
        A decorator. Only options that are not at their default are set: `settings.given()` has them.
    """

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        kinds = {name: each.annotation for name, each in signature.parameters.items() if _is_settings(each.annotation)}
        options: list[inspect.Parameter] = []
        for name, parameter in signature.parameters.items():
            if name in kinds:
                options += _options(kinds[name], without)
            else:
                options.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

        @wraps(command)
        def run(**given: Any) -> None:
            for name, kind in kinds.items():
                given[name] = kind.checked(_taken(kind, given, without))
            command(**given)

        run.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
        run.__annotations__ = {option.name: option.annotation for option in options}
        return run

    return decorate


def _is_settings(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Settings)


def _fields(kind: type[Settings], without: Collection[str]) -> Iterator[tuple[str, FieldInfo, type[Settings] | None]]:
    """Name, field, and the settings that a field holds in turn."""
    first = {name for name in kind.__annotations__ if name in kind.model_fields}  # its own, then those of its bases
    for name, field in sorted(kind.model_fields.items(), key=lambda item: item[0] not in first):
        if name not in without:
            inner = [each for each in get_args(field.annotation) if _is_settings(each)]
            yield name, field, inner[0] if inner else None


def _options(kind: type[Settings], without: Collection[str], prefix: str = "") -> Iterator[inspect.Parameter]:
    for name, field, inner in _fields(kind, without):
        if inner is not None:
            yield from _options(inner, (), f"{name}_")
        else:
            annotation, default = _typed(field, prefix + name)
            yield inspect.Parameter(
                prefix + name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
            )


def _taken(kind: type[Settings], given: dict[str, Any], without: Collection[str], prefix: str = "") -> dict[str, Any]:
    """What was given of some settings, which is taken out of what the command got."""
    found = {}
    for name, field, inner in _fields(kind, without):
        if inner is None:
            value, usual = given.pop(prefix + name), [] if option_of(field).repeated else _default(field)
        else:
            value, usual = _taken(inner, given, (), f"{name}_"), {}
            lacking = [key for key, each in inner.model_fields.items() if each.is_required() and key not in value]
            if value and lacking:
                raise RunError(f"the options of {name} need its {lacking[0]}: add --{name}-{lacking[0]}")
        if value != usual:
            found[name] = value
    return found


def _typed(field: FieldInfo, name: str) -> tuple[Any, Any]:
    """The type of an option, and the option."""
    shown = option_of(field)
    kind: Any = str if shown.is_text else _plain(field.annotation, name)
    if shown.repeated:
        kind = list[str]
    option = typer.Option(
        [] if shown.repeated else _default(field),
        f"--{shown.repeated or name.replace('_', '-')}",  # alone, so that a flag has no --no-...
        help=field.description,
        rich_help_panel=shown.panel,
        show_default=shown.default or kind is not bool,
        metavar=shown.metavar,
        envvar=shown.envvar,
        min=_bound(field, annotated_types.Ge, "ge"),
        max=_bound(field, annotated_types.Le, "le"),
    )
    return (kind if kind is bool or get_origin(kind) is list else kind | None), option


def _default(field: FieldInfo) -> Any:
    """The value without the option; None where it depends on others, or there is none."""
    if field.is_required() or field.default_factory is not None:
        return None
    value = field.get_default()
    return str(value) if option_of(field).is_text and value is not None else value


def _plain(annotation: Any, name: str) -> Any:
    """A type that typer knows: without None, and choices as an enumeration."""
    if get_origin(annotation) in (Union, type(int | None)):
        annotation = next(each for each in get_args(annotation) if each is not type(None))
    if get_origin(annotation) is list:
        return list[_plain(get_args(annotation)[0], name)]  # type: ignore[misc]
    if get_origin(annotation) is Literal:
        return StrEnum(name, {each: each for each in get_args(annotation)})
    return annotation


def _bound(field: FieldInfo, kind: type, name: str) -> Any:
    """The lowest or highest value, where the value itself is allowed; of other bounds the settings speak."""
    return next((getattr(each, name) for each in field.metadata if isinstance(each, kind)), None)


def check_models(names: Iterable[str | Path], trained: bool = False) -> None:
    """Refuse runs and checkpoints that are not there; a text that is not a path may be a name on the Hub.

    `trained`: also models that Rosewood brings along, which nobody has fine-tuned to a task yet.
    """
    from rosewood.data.embedded import INSTALL

    for name in names:
        check_there(name)
        if trained and name in INSTALL and not Path(name).exists():
            raise RunError(
                f"{name} is a pre-trained model without a classification head: fine-tune it first, rosewood train "
                f"--model {name}"
            )


def check_files(
    train_file: Path | None, others: Iterable[Path | None], text_columns: Sequence[str], label_column: str
) -> None:
    """Refuse files of the user's own that cannot be read, or that lack a column."""
    if train_file is None:
        return
    from rosewood.data.files import check_columns, read_file

    for file in filter(None, [train_file, *others]):
        check_columns(file, list(read_file(file).columns), text_columns or ["text"], label_column)


def check_defences(names: Iterable[str]) -> None:
    """Refuse defences that are not there; one may be a chain of several, and a kind may follow, as in smoothed:mask."""
    from rosewood.config.registry import module_of

    for name in names:
        for part in name.split("+"):
            module_of("defence", part.partition(":")[0])


PANELS = {
    "Start": ["demo", "list", "explain", "schema"],
    "Defend": ["harden", "wrap", "certify"],
    "Train": ["train", "tune", "compare", "average"],
    "Measure": ["evaluate", "attack", "table", "gate"],
    "Share": ["report", "card", "serve", "export", "push"],
    "Study": ["dynamics", "landscape", "interpolate", "geometry", "tradeoff", "probe"],
}
"""How `rosewood --help` groups the commands; one that is not here comes last, under "Commands"."""


class InPanels(TyperGroup):
    """The commands in the order of `PANELS`, each in its panel."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        panels = {name: panel for panel, names in PANELS.items() for name in names if name in self.commands}
        self.commands = {name: self.commands[name] for name in [*panels, *self.commands]}
        for name, panel in panels.items():
            cast(TyperCommand | TyperGroup, self.commands[name]).rich_help_panel = panel


app = typer.Typer(
    name="rosewood",
    cls=InPanels,
    help="Find, train and measure defences that keep text classifiers right under typos, replaced words and noise.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"rosewood {version('rosewood')}")
        raise typer.Exit


@app.callback()
def options(
    show_version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Find, train and measure defences that keep text classifiers right under typos, replaced words and noise."""


def examples(*commands: str) -> str:
    """The end of a command's help."""
    return "\n\n".join([f"[bold]{'Examples' if len(commands) > 1 else 'Example'}[/]", *commands])


@contextmanager
def resumable(console: Console) -> Iterator[None]:
    """On Ctrl-C, say that the work is kept, and print the command that continues it."""
    try:
        yield
    except KeyboardInterrupt:
        again = shlex.join(["rosewood", *sys.argv[1:]])
        console.print(f"Interrupted. Finished work is kept. Continue with: {again}", highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print the warnings of Rosewood as sentences, each once, and none of the libraries', which are for programmers."""
    console, shown = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False), set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        # By who warns: `stacklevel`, which decides on the file that Python would name, often means a library.
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__") == "warnings":
            frame = frame.f_back
        ours = frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "rosewood"
        if ours and str(message) not in shown:
            shown.add(str(message))
            console.print(f"[bold yellow]Warning:[/] {_escaped(message)}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def commands() -> typer.Typer:
    """The whole command line: each file adds its commands when it is imported."""
    from rosewood.cli import (
        attack,
        compare,
        defences,
        evaluate,
        explain,
        harden,
        lab,
        listing,
        models,
        report,
        train,
    )

    return app


def main() -> None:
    """Entry point: our own errors are printed as sentences, everything else keeps its traceback."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        with plain_warnings():
            commands()()
    except RosewoodError as error:
        # Without emoji: `smoothed:mask: ...` would become one.
        console = Console(stderr=True, soft_wrap=True, emoji=False)
        console.print(f"[bold red]Error:[/] {_escaped(error)}", highlight=False)
        sys.exit(1)


def _escaped(said: Exception | str) -> str:
    from rich.markup import escape

    return escape(str(said))
