"""The command line: a file for each command, or for a few that belong together."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

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


def examples(*commands: str) -> str:
    """The end of a command's help."""
    return "\n\n".join([f"[bold]{'Examples' if len(commands) > 1 else 'Example'}[/]", *commands])


@contextmanager
def resumable(console: Console) -> Iterator[None]:
    """Ctrl-C ends a command whose work is kept with the command that goes on with it."""
    try:
        yield
    except KeyboardInterrupt:
        again = shlex.join(["rosewood", *sys.argv[1:]])
        console.print(f"Interrupted; what is done is kept. Go on with: {again}", highlight=False, soft_wrap=True)
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
        tune,
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
