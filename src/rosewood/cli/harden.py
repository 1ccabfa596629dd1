"""rosewood harden and demo: the best defence for a model and its data, found by measuring."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich import get_console

from rosewood.cli import app, check_defences, check_files, check_models, examples, options_of_settings, resumable
from rosewood.cli.compare import chosen_engine
from rosewood.cli.options import CANDIDATE_CPUS, LABEL_COLUMN, LEXICON, RAY_ADDRESS, TEXT_COLUMN, TRAIN_FILE
from rosewood.config.settings import DATA, LARGEST_SEED, RunSettings, TrainingShortcuts

if TYPE_CHECKING:
    from rosewood.data.tasks import Task

LIMITS, SEARCH = "Limits", "Search"
_NOT_HERE = (
    "model", "validation_size", "new_head", "early_stopping", "select_by", "select_examples", "max_skipped_steps",
    "watch", "watch_every", "lora", "epochs", "warn_after", "report_to",
)  # fmt: skip


@app.command(
    epilog=examples(
        "rosewood harden my-model --train-file mine.csv --test-file test.csv --threat characters --budget 30m",
        "rosewood harden my-model --train-file mine.csv --threat words,characters --budget 2h --max-clean-loss 1.0",
        "rosewood harden minilm --task reviews --threat typos --candidate augment --candidate augment+rose",
        "rosewood harden my-model --train-file mine.csv --max-cost 20 --jobs 2",
    )
)
@options_of_settings(without=_NOT_HERE)
def harden(
    model: str = typer.Argument(
        help="A fine-tuned classifier (folder, run or Hub name), or a pre-trained model to fine-tune first."
    ),
    output: Path = typer.Option(Path("hardened"), "--output", "-o", help="Where everything goes."),
    task: str | None = typer.Option(
        None, help="A task of `rosewood list tasks`, or a YAML file.", rich_help_panel=DATA
    ),
    train_file: Path | None = TRAIN_FILE,
    eval_file: Path | None = typer.Option(
        None,
        help="Your own rows to choose by, which the model has not seen.",
        show_default="a tenth of --train-file",
        rich_help_panel=DATA,
    ),
    test_file: Path | None = typer.Option(
        None,
        help="Your own test data, read once, at the end.",
        show_default="a tenth of --train-file",
        rich_help_panel=DATA,
    ),
    text_column: list[str] = TEXT_COLUMN,
    label_column: str = LABEL_COLUMN,
    threat: str = typer.Option(
        "words,characters", help="What may change: words, characters, all, or attacks by name, with commas."
    ),
    budget: str = typer.Option("2h", help="Time for everything: 2h, 90m, 1h30m.", rich_help_panel=LIMITS),
    max_clean_loss: float = typer.Option(
        1.0, min=0.0, help="Points of clean accuracy that the result may lose.", rich_help_panel=LIMITS
    ),
    max_cost: float = typer.Option(
        1.0, min=1.0, help="Passes of the network for one text; 1 leaves out ensembles.", rich_help_panel=LIMITS
    ),
    candidate: list[str] = typer.Option(
        [],
        metavar="RECIPE",
        help="Race this recipe, NAME:VARIANT or a YAML file, with settings after it; with @pretrained from the "
        "pre-trained model (repeatable): 'rose-ensemble@pretrained selection.keep_quantile=0.8'.",
        show_default="some that suit the threat",
        rich_help_panel=SEARCH,
    ),
    wrapper: list[str] = typer.Option(
        [],
        metavar="DEFENCE",
        help="Try this one of `rosewood list defences` around models, or none (repeatable).",
        show_default="those that suit threat and cost",
        rich_help_panel=SEARCH,
    ),
    lexicon: str | None = LEXICON,
    jobs: int | None = typer.Option(
        None, min=1, help="Candidates at a time, in processes that share the cores.", show_default="1, in this process"
    ),
    engine: str = typer.Option("local", help="What runs the candidates: local processes, or a ray cluster."),
    ray_address: str | None = RAY_ADDRESS,
    cpus: int | None = CANDIDATE_CPUS,
    settings: RunSettings = RunSettings(),  # noqa: B008  frozen
    shortcuts: TrainingShortcuts = TrainingShortcuts(),  # noqa: B008
) -> None:
    """Find the best defence for a model and its data, and keep it if it is really better.

    Recipes race within the budget, on rows held out from training; mixtures of weights and wrappers are tried too. The
    test rows are read once, at the end: your model and the winner side by side, with paired tests. If nothing is better
    beyond noise, it says so and changes nothing. Run the same command again to continue after Ctrl-C or a crash.
    """
    from rosewood.attacks import known_attack

    check_models([model])
    check_files(train_file, [eval_file, test_file], text_column, label_column)
    check_defences(name for name in wrapper if name != "none")
    for name in filter(None, map(str.strip, threat.split(","))):
        known_attack(name, or_threat=True)
    console = get_console()
    with console.status("Loading"):
        from rosewood.experiments.harden.board import show_end
        from rosewood.experiments.harden.harden import harden as run

    of_ray = {"address": ray_address, "cpus": cpus}
    here = jobs is None and engine == "local" and not any(of_ray.values())
    with resumable(console):
        found = run(
            model,
            task,
            train_file=train_file,
            eval_file=eval_file,
            test_file=test_file,
            text_columns=text_column,
            label_column=label_column,
            threats=threat,
            budget=budget,
            max_clean_loss=max_clean_loss,
            max_cost=max_cost,
            output=output,
            candidates=candidate,
            wrapped=None if not wrapper else [name for name in wrapper if name != "none"],
            lexicon=lexicon,
            training=shortcuts.arguments(),
            engine=None if here else chosen_engine(engine, jobs, [], of_ray),
            console=console,
            **settings.given(),
        )
    show_end(found, output, console)


# The same work on every machine. Sizes were found on validation rows, which choose here, too, and on test rows of the
# task reviews. So the test rows that are shown here are others, the part demo-test of the embedded reviews: training
# rows when the sizes were fixed, left out of training now. No setting was chosen by a figure on them. A run on the
# test rows of an earlier version led to the rule that equally robust candidates are ranked by clean accuracy.
# In a run on the rows that are shown here the difference was exactly one standard error. Rounding had decided such
# ties; now they count as equal, which is how the rule was first written.
TRAIN_SIZE, LENGTH, LEARNING_RATE = 6000, 48, 2e-4
PLAIN_STEPS = 60
STEPS = {"augment:random": [24], "rose-ensemble:fast@pretrained": [90]}
CHOOSING, ATTACKED, TEST = 300, 50, 100
MADE = 1
"""Candidates that need no training: the mean of the weights of the better one and of the plainly trained model."""


def _demo_task() -> Task:
    """The task reviews with other test rows than those that its users have seen, which are left out of training."""
    from rosewood.data.tasks import load_task

    task = load_task("reviews")
    parts = {"train": "demo-train", "test": "demo-test"}
    splits = {}
    for name, split in task.splits.items():
        assert split.embedded is not None
        source = split.embedded.model_copy(update={"part": parts.get(name, split.embedded.part)})
        splits[name] = split.model_copy(update={"embedded": source})
    return task.model_copy(update={"splits": splits})


@app.command()
def demo(
    output: Path = typer.Option(Path("runs/demo"), "--output", "-o", help="Where everything goes."),
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED),
) -> None:
    """Fine-tune MiniLM on film reviews, attack its letters, harden it, and compare the two on other reviews.

    Needs the extra `demo` (a 23 million parameter model and 33,530 reviews) and no network. A demo that was
    interrupted resumes.
    """
    from rosewood.data.embedded import embedded_model, reviews_file

    embedded_model()  # both raise an error if the extra is missing: before anything slow is imported
    reviews_file()

    from rosewood.experiments.harden.board import show_end
    from rosewood.experiments.harden.harden import harden
    from rosewood.results import Schedule

    console = get_console()
    console.print(
        f"Fine-tuning MiniLM on {TRAIN_SIZE:,} Rotten Tomatoes reviews, then hardening it against typos and look-alike "
        "letters. Augmentation, ROSE and spelling correction race on validation reviews. The best one is then measured "
        "on test reviews that were used for no choice, neither here nor when this demo was written.",
        highlight=False,
    )
    with resumable(console):
        found = harden(
            "minilm",
            _demo_task(),
            threats="characters",
            budget="5m",
            max_clean_loss=2.0,
            candidates=list(STEPS),
            wrapped=["corrected"],
            output=output,
            training={"learning_rate": LEARNING_RATE},
            train_size=TRAIN_SIZE,
            max_length=LENGTH,
            seed=seed,
            console=console,
            schedule=Schedule(
                entrants=list(STEPS),
                keep=[2],
                steps=STEPS,
                clean_rows=CHOOSING,
                attacked_rows=ATTACKED,
                mixtures=MADE,
                test_rows=TEST,
                seconds=300.0,
                plain_steps=PLAIN_STEPS,
            ),
        )
    show_end(found, output, console)
