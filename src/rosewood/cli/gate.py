"""rosewood gate: required figures of a run, for CI."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from rosewood.cli import app
from rosewood.errors import RunError

EXAMPLES = """
[bold]Examples[/]

  rosewood gate runs/rose --require 'clean>=0.85' --require 'attack:typos>=0.40' --require 'ece<=0.08'

  rosewood gate runs/rose --requirements gate.yaml --junit gate.xml --markdown gate.md
"""


@app.command(epilog=EXAMPLES)
def gate(
    run: Path = typer.Argument(help="A run that was evaluated, and attacked where an attack is required."),
    require: list[str] = typer.Option([], "--require", "-r", help="FIGURE>=NUMBER or FIGURE<=NUMBER; repeatable."),
    requirements: Path | None = typer.Option(None, help="A YAML file with a list of requirements under `require`."),
    suite: str | None = typer.Option(None, help="The suite that counts.", show_default="that of the latest evaluation"),
    junit: Path | None = typer.Option(None, help="Write the result as JUnit XML."),
    markdown: Path | None = typer.Option(None, help="Write the result as Markdown."),
) -> None:
    """Check the figures of a run against requirements; the exit code is 0 if all are met, else 1.

    Figures: clean, shift, adversarial, noise (mean accuracy of these sets), the name of a set, the name of an attack
    (pwws; worst:words is the attack worst on words), and ece, macro_f1 and worst_group of the clean sets. The lower
    end of a figure's 95 % interval must reach a bound after >=, the upper end one after <=.
    """
    from rosewood.experiments.gate import gate as check
    from rosewood.experiments.gate import read_requirements
    from rosewood.results.durable import write_whole
    from rosewood.results.grid import Folded

    wanted = [*(read_requirements(requirements) if requirements else []), *require]
    if not wanted:
        raise RunError("nothing is required: add --require 'clean>=0.85', or --requirements FILE")
    found = check(run, wanted, suite)
    console = Console()
    console.print(Folded(found.grid()))
    for reason in found.reasons():
        console.print(f"[bold red]FAILED[/] {escape(reason)}", highlight=False, soft_wrap=True)
    if junit is not None:
        write_whole(junit, found.junit())
    if markdown is not None:
        write_whole(markdown, found.markdown())
    if not found.passed:
        raise typer.Exit(1)
