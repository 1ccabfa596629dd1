"""The command line: one file a command."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from rosewood.errors import RosewoodError

app = typer.Typer(
    name="rosewood",
    help="Fine-tune language models so that they stay right when text is attacked, shifted or noisy.",
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
    """Fine-tune language models so that they stay right when text is attacked, shifted or noisy."""


@contextmanager
def resumable(console: Console) -> Iterator[None]:
    """Ctrl-C ends a command whose work is kept with the command that goes on with it."""
    try:
        yield
    except KeyboardInterrupt:
        again = shlex.join(["rosewood", *sys.argv[1:]])
        console.print(f"Interrupted; what is done is kept. Go on with: {again}", highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None


def main() -> None:
    """Entry point: our own errors are printed as sentences, everything else keeps its traceback."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from rosewood.cli import (  # noqa: F401  each file adds its command
        attack,
        average,
        card,
        compare,
        demo,
        dynamics,
        evaluate,
        explain,
        geometry,
        interpolate,
        landscape,
        lexicons,
        listing,
        probe,
        report,
        schema,
        serve,
        table,
        tradeoff,
        train,
        tune,
    )

    try:
        app()
    except RosewoodError as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {_escaped(error)}", highlight=False)
        sys.exit(1)


def _escaped(error: Exception) -> str:
    from rich.markup import escape

    return escape(str(error))
