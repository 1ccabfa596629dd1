"""rosewood demo: the main job in a few minutes, offline."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from rosewood.cli import app
from rosewood.config.settings import LARGEST_SEED

RECIPES = ("vanilla", "rose-ensemble")
TRAIN_SIZE = 1280
EPOCHS = 2.0
LEARNING_RATE = 2e-4  # the better of 1e-4 and 2e-4 on the validation split, for both recipes
EVALUATION_SIZE = 600
LENGTH = 64


@app.command()
def demo(
    output: Path = typer.Option(Path("runs/demo"), "--output", "-o", help="Where the two runs go."),
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED),
) -> None:
    """Fine-tune MiniLM on movie reviews with and without ROSE, and compare how robust the two models are.

    Needs the extra `demo` (a 23 million parameter model and 33,530 reviews) and no network. A demo that was
    interrupted continues where it stood.
    """
    from rosewood.data.embedded import embedded_model, reviews_file

    embedded_model()  # both raise an error if the extra is missing: before anything slow is imported
    reviews_file()

    from rosewood.cli.evaluate import evaluate_one
    from rosewood.comparison.table import render
    from rosewood.data.tasks import load_task
    from rosewood.recipe import load_recipe
    from rosewood.training.run import Interrupted, Plan, finish_run

    console = Console()
    console.print(
        f"Fine-tuning MiniLM on {TRAIN_SIZE:,} Rotten Tomatoes reviews, once plainly and once with ROSE-Ensemble, "
        f"then evaluating both on other Rotten Tomatoes reviews, with typos, and on IMDB.",
        highlight=False,
    )
    evaluations = {}
    for name in RECIPES:
        directory = output / name
        plan = Plan(
            recipe=load_recipe(name),
            task=load_task("reviews"),
            train_size=TRAIN_SIZE,
            validation_size=EVALUATION_SIZE,
            max_length=LENGTH,
            seed=seed,
            arguments={"num_train_epochs": EPOCHS, "learning_rate": LEARNING_RATE},
        )
        try:
            finish_run(plan, directory)
        except Interrupted:
            console.print("Interrupted; nothing is lost. Run the same command again to continue.")
            raise typer.Exit(130) from None
        evaluations[name] = evaluate_one(str(directory), None, None, EVALUATION_SIZE, 64, 0.3, seed)
    console.print(render(evaluations))
    console.print(f"Models, recipes, histories and evaluations are in {output}", highlight=False)
