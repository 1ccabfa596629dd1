"""rosewood report, table, card and gate: evaluated runs as a page, as a table, as a card, and against a standard."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import typer
from rich.console import Console
from rich.markup import escape

from rosewood.cli import app, check_models, examples
from rosewood.cli.options import SUITE
from rosewood.errors import RunError


@app.command(
    epilog=examples(
        "rosewood report runs/vanilla runs/rose",
        "rosewood report runs/* --baseline vanilla --suite sentiment --output report.html",
        "rosewood report runs/vanilla runs/rose --landscape landscapes/sst2",
    )
)
def report(
    runs: list[Path] = typer.Argument(help="Runs that were evaluated on the same suite or task."),
    output: Path = typer.Option(Path("report.html"), "--output", "-o", help="The file to write."),
    suite: str | None = SUITE,
    baseline: str | None = typer.Option(
        None, help="The recipe that the others are tested against.", show_default="vanilla, if it is among the runs"
    ),
    landscape: Path | None = typer.Option(
        None, help="Folder that rosewood landscape wrote for these runs.", show_default="none"
    ),
    title: str | None = typer.Option(None, help="The title of the page.", show_default="the suite or task"),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace the file if there is one."),
) -> None:
    """Write one page that shows how robust runs are: verdict, table, charts, attacked texts, recipes, commands.

    The page is a single file that needs no network. It shows what the runs hold: evaluate and attack them first.
    """
    if output.suffix.lower() not in (".html", ".htm"):
        raise RunError(f"a report is a page: expected --output to end in .html, got {output}")
    if output.exists() and not overwrite:
        raise RunError(f"{output} exists: add --overwrite, or choose another --output")
    check_models(runs)
    console = Console()
    with console.status("reading runs"):
        from rosewood.comparison.runs import load_runs
        from rosewood.report.page import write_report
        from rosewood.report.subject import subject_of

        found = subject_of(load_runs(runs, suite), baseline, landscape=landscape)
    with console.status("drawing"):
        write_report([found], output, title)
    console.print(f"The report is in {output}", highlight=False, soft_wrap=True, markup=False)


@app.command(
    epilog=examples(
        "rosewood table runs/vanilla-* runs/rose-* --baseline vanilla",
        "rosewood table runs/* --baseline vanilla --format latex > table.tex",
    )
)
def table(
    runs: list[Path] = typer.Argument(help="Runs that were evaluated on the same suite or task."),
    suite: str | None = SUITE,
    baseline: str | None = typer.Option(None, help="The recipe that the others are compared with."),
    format_: Literal["terminal", "markdown", "latex"] = typer.Option(
        "terminal", "--format", help="How to write the table."
    ),
) -> None:
    """Print the evaluations of runs in one table: a row for each recipe, mean and deviation over its seeds.

    With --baseline, differences are tested: over seeds, and on the same examples.
    """
    check_models(runs)
    from rosewood.comparison.methods import compared
    from rosewood.comparison.runs import load_runs
    from rosewood.report.subject import subject_of, verdict
    from rosewood.results.grid import FORMATS, Folded

    loaded = load_runs(runs, suite)
    grids = compared(loaded, baseline)
    if format_ == "terminal":
        console = Console()
        for grid in grids:
            console.print(Folded(grid))
        console.print(verdict(subject_of(loaded, baseline)).shown, style="bold", markup=False, highlight=False)
    else:
        print("\n\n".join(map(FORMATS[format_], grids)))


@app.command(
    epilog=examples(
        "rosewood card runs/rose",
        "rosewood card runs/rose --suite sentiment --output card.md",
    )
)
def card(
    run: Path = typer.Argument(help="A run that was evaluated."),
    output: Path | None = typer.Option(
        None, "--output", "-o", help="The file to write.", show_default="RUN/model/README.md"
    ),
    suite: str | None = SUITE,
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace the file if there is one."),
) -> None:
    """Write the card of a model for the Hugging Face Hub, with the figures of its evaluation and attacks.

    The figures are also in the card's front matter, and those on data sets of the Hub in .eval_results/, where the Hub
    reads them. Nothing is uploaded: rosewood push does that.
    """
    check_models([run])
    path = run / "model" / "README.md" if output is None else output
    if path.exists() and not overwrite:
        raise RunError(f"{path} exists, and may have been written by hand: add --overwrite, or choose another --output")
    console = Console()
    with console.status("reading the run"):
        from rosewood.report.hub import write_card

        results = write_card(run, path, suite)
    console.print(f"The card is in {path}", highlight=False, soft_wrap=True, markup=False)
    if results:
        folder = results[0].parent
        console.print(f"Evaluation results for the Hub are in {folder}", highlight=False, soft_wrap=True, markup=False)
    if output is None:
        console.print(f"Next: rosewood push {run} NAME", highlight=False, soft_wrap=True, markup=False)


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
    suite: str | None = typer.Option(None, help="The suite that counts.", show_default="latest evaluation"),
    junit: Path | None = typer.Option(None, help="Write the result as JUnit XML."),
    markdown: Path | None = typer.Option(None, help="Write the result as Markdown."),
) -> None:
    """Check the figures of a run against requirements; the exit code is 0 if all are met, else 1.

    Figures: clean, shift, adversarial, noise (mean accuracy of these sets), the name of a set, the name of an attack
    (pwws; worst:words is the attack worst on words), and ece, macro_f1 and worst_group of the clean sets. The lower
    end of a figure's 95 % interval must reach a bound after >=, the upper end one after <=.
    """
    check_models([run])
    from rosewood.experiments.gate import gate as check
    from rosewood.experiments.gate import read_requirements
    from rosewood.results.files import write_whole
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
