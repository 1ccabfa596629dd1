"""rosewood average, push, export and serve: what to do with trained models."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from rosewood.cli import app, check_models, examples
from rosewood.cli.evaluate import check_run, task_of
from rosewood.cli.options import RUN_TASK, TRUSTED_RUNS
from rosewood.errors import RunError

if TYPE_CHECKING:
    from rosewood.lab.playground.app import Playground


@app.command(
    epilog=examples(
        "rosewood average runs/rose --with-pretrained 0.5 --output runs/rose-wise",
        "rosewood average runs/seed0 runs/seed1 runs/seed2 --output runs/soup",
        "rosewood average ./my-checkpoint --pretrained bert-base-uncased --with-pretrained 0.5 --output my-wise",
    )
)
def average(
    runs: list[Path] = typer.Argument(help="Finished runs, or checkpoint folders, of the same model and labels."),
    output: Path = typer.Option(..., "--output", "-o", help="The new run directory; of a checkpoint, its folder."),
    with_pretrained: float = typer.Option(
        0.0, min=0.0, max=1.0, help="Share of the pre-trained weights in the result (WiSE-FT); the head has none."
    ),
    pretrained: str | None = typer.Option(
        None,
        metavar="MODEL",
        help="The model that a checkpoint was fine-tuned from: a folder, a Hub name, or one of `rosewood list models`.",
        show_default="the one that it names",
    ),
    weight: list[float] = typer.Option(
        [], min=0.0, help="Weight of a run, once for each in their order.", show_default="equal weights"
    ),
) -> None:
    """Average the weights of runs with each other (a soup), with their pre-trained model (WiSE-FT), or both.

    Costs no training. The result is a run like any other, or a checkpoint if the first was one: evaluate it next.
    """
    check_models(runs)
    from rosewood.models import averaging
    from rosewood.results import Average

    info = averaging.average(runs, output, weight or None, with_pretrained, pretrained)
    console = Console()
    mixed = Average.load(output / "average.json").pretrained
    share = "" if mixed is None else f", with {with_pretrained:.0%} of {mixed}"
    console.print(f"The averaged model is in {output}{share}", highlight=False, soft_wrap=True, markup=False)
    task = " --task TASK" if info is None else ""  # which a checkpoint does not say
    console.print(f"Next: rosewood evaluate {output}{task}", highlight=False)


@app.command(
    epilog=examples(
        "rosewood card runs/rose && rosewood push runs/rose my-name/reviews-rose",
        "rosewood push runs/rose my-name/reviews-rose --private",
    )
)
def push(
    run: Path = typer.Argument(help="A finished run with a model card (rosewood card)."),
    name: str = typer.Argument(help="The repository on the Hub, such as my-name/reviews-rose; it is made if need be."),
    private: bool = typer.Option(False, "--private", help="Let only you see a repository that is made."),
    message: str = typer.Option("Upload a model trained with Rosewood", help="Of the commit."),
) -> None:
    """Upload the model of a run to the Hugging Face Hub, with its tokenizer, card and evaluation results.

    Needs a token: hf auth login. Checkpoints, histories and data stay here.
    """
    check_models([run])
    console = Console()
    with console.status("uploading"):
        from rosewood.report.hub import push_run

        address = push_run(run, name, private, message)
    console.print(f"The model is at {address}", highlight=False, soft_wrap=True, markup=False)


@app.command(
    epilog=examples(
        "rosewood export runs/rose --output exported",
        "rosewood attack exported --attack typos --test-file test.csv",
    )
)
def export(
    run: str = typer.Argument(help="A run, a checkpoint folder, or a name on the Hub."),
    output: Path = typer.Option(..., "--output", "-o", help="A new folder for model.onnx, config.json and tokenizer."),
) -> None:
    """Write a classifier as an ONNX file, and check that it gives the same scores.

    The folder can be evaluated and attacked like a checkpoint, and has the layout that Optimum reads. Needs the extra
    `onnx`.
    """
    check_models([run], trained=True)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise RunError(f"{output} exists: choose a new folder")
    console = Console()
    with console.status("exporting"):
        from rosewood.models.onnx import FILE, export_onnx
        from rosewood.models.open import open_run

        opened = open_run(run)
        found = export_onnx(opened.model, opened.tokenizer, output)
    size = (output / FILE).stat().st_size / 1e6
    console.print(
        f"{output / FILE} ({size:.1f} MB) gives the same scores; the largest difference of a logit is {found:.0e}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"Next: rosewood attack {output} --attack typos --test-file FILE", highlight=False, soft_wrap=True)


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
    task: str | None = RUN_TASK,
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
    trust_remote_code: list[str] = TRUSTED_RUNS,
) -> None:
    """Serve a page on which a sentence meets several runs: their probabilities side by side, and live attacks.

    The page is for this machine only, nothing leaves it, and Ctrl-C ends it.
    """
    check_models(runs, trained=True)
    from rosewood.lab.playground.app import import_gradio, start

    for run in runs:  # all of them before the first is loaded
        check_run(run, task, takes_file=False)
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
    from rosewood.lab.playground.served_runs import AttackChoices, ServedRun, common_task, names_of, samples
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
