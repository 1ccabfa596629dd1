"""rosewood demo: harden a real model in a few minutes, offline."""

from __future__ import annotations

from pathlib import Path

import typer
from rich import get_console

from rosewood.cli import app, resumable
from rosewood.config.settings import LARGEST_SEED

# The same work on every machine. Sizes were found on validation rows, which choose here, too; the test rows that are
# shown have decided nothing.
TRAIN_SIZE, LENGTH, LEARNING_RATE = 6400, 48, 2e-4
PLAIN_STEPS = 60
STEPS = {"augment:random": [24], "rose-ensemble:fast@pretrained": [90]}
CHOOSING, ATTACKED, TEST = 300, 50, 100
MADE = 1
"""Candidates without training at the end: of the better one and the plainly trained model the mean."""


@app.command()
def demo(
    output: Path = typer.Option(Path("runs/demo"), "--output", "-o", help="Where everything goes."),
    seed: int = typer.Option(0, min=0, max=LARGEST_SEED),
) -> None:
    """Fine-tune MiniLM on film reviews, attack its letters, harden it, and compare the two on other reviews.

    Needs the extra `demo` (a 23 million parameter model and 33,530 reviews) and no network. A demo that was
    interrupted continues where it stood.
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
        "letters: augmentation, ROSE and spelling correction race on validation reviews, and the best one meets test "
        "reviews.",
        highlight=False,
    )
    with resumable(console):
        found = harden(
            "minilm",
            "reviews",
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
