"""rosewood serve: type a sentence, see what several runs say of it, and attack it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from rosewood.cli import app, examples
from rosewood.cli.evaluate import check_run, task_of

if TYPE_CHECKING:
    from rosewood.lab.playground.app import Playground

HERE = ("127.0.0.1", "localhost", "::1")


@app.command(
    epilog=examples(
        "rosewood serve runs/vanilla runs/rose",
        "rosewood serve runs/vanilla runs/rose --port 8000",
        "rosewood serve ./my-checkpoint --task sst2 --lexicon my-words.json",
    )
)
def serve(
    runs: list[str] = typer.Argument(help="Run directories, checkpoint folders or Hub names, all of one task."),
    task: str | None = typer.Option(None, help="A task or its YAML file.", show_default="the runs'"),
    data_dir: Path | None = typer.Option(
        None, envvar="ROSEWOOD_DATA", help="Folder with lexicons and examples.", show_default="the first run's"
    ),
    lexicon: str | None = typer.Option(
        None,
        help="The lexicon chosen at first: counter-fitted, wordnet, roget, or a JSON file of word -> substitutes.",
        show_default="counter-fitted if --data-dir has it, else roget",
    ),
    max_length: int | None = typer.Option(
        None, min=4, help="Tokens per text.", show_default="the run's, or the tokenizer's"
    ),
    host: str = typer.Option("127.0.0.1", help="The address to listen on; 0.0.0.0 is all of them."),
    port: int | None = typer.Option(
        None, min=1, max=65535, help="The port to listen on.", show_default="the first free one from 7860"
    ),
    trust_remote_code: list[str] = typer.Option(
        [],
        metavar="RUN",
        help="Run the code that this run or checkpoint brings along (repeatable).",
        show_default=False,
    ),
) -> None:
    """Serve a page on which a sentence meets several runs: their probabilities side by side, and live attacks.

    The page is for this machine only, nothing leaves it, and Ctrl-C ends it.
    """
    from rosewood.lab.playground.app import import_gradio, start

    for run in runs:  # all of them before the first is loaded
        check_run(run, task)
    import_gradio()
    console = Console(highlight=False, soft_wrap=True)
    with Console(stderr=True).status("Loading the runs"):
        playground = _playground(runs, task, data_dir, lexicon, max_length, set(trust_remote_code))
    page = start(playground, host, port)
    if host not in HERE:
        console.print(
            f"[yellow]Warning:[/] with --host {host} everybody who reaches port {page.server_port} of this machine can "
            "use these models and its processor; there is no password."
        )
    console.print(f"The playground is at {page.local_url} until you press Ctrl-C.")
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        with Console(stderr=True).status("Stopping"):
            playground.stop()
            page.close(verbose=False)
        console.print("Stopped.")


def _playground(
    runs: list[str],
    task: str | None,
    data_dir: Path | None,
    lexicon: str | None,
    max_length: int | None,
    trusted: set[str],
) -> Playground:
    from accelerate import PartialState

    from rosewood.lab.playground.app import Playground
    from rosewood.lab.playground.runs import AttackChoices, ServedRun, common_task, names_of, samples
    from rosewood.models.open import open_run, run_info

    infos = {run: info for run in runs if (info := run_info(run)) is not None}
    names = names_of(runs)
    shared = common_task({run: task_of(run, task, Path(run) if run in infos else None) for run in runs})
    folder = data_dir or next((Path(info.data_dir) for info in infos.values() if info.data_dir), None)
    choices = AttackChoices(shared, folder, lexicon)
    device = PartialState().device
    served = []
    for run, name in zip(runs, names, strict=True):
        opened = open_run(run, trusted)
        length = max_length or opened.max_length
        served.append(ServedRun.of(name, opened.model.to(device), opened.tokenizer, shared, length))
    return Playground(shared, served, choices, samples(shared, folder))
