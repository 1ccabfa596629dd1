"""Options that several commands have, so that they are called, explained and shown alike everywhere."""

from __future__ import annotations

from typing import Any

import typer

from rosewood.config.settings import DATA, TRAINING

RAY = "Ray"


def _data_dir(default: str | None, panel: str | None = DATA) -> Any:
    help_, shown = "Folder with the tasks' files.", default or False
    return typer.Option(None, envvar="ROSEWOOD_DATA", help=help_, show_default=shown, rich_help_panel=panel)


DATA_DIR, RUN_DATA_DIR = _data_dir(None), _data_dir("the run's")
FIRST_RUN_DATA_DIR = _data_dir("the first run's")

RUN_TASK = typer.Option(None, help="A task or its YAML file.", show_default="the run's", rich_help_panel=DATA)
TRAIN_FILE = typer.Option(None, help="Your own training data: CSV, TSV, JSON Lines or Parquet.", rich_help_panel=DATA)
TEXT_COLUMN = typer.Option([], help="Column with the text; twice for pairs.", show_default="text", rich_help_panel=DATA)
LABEL_COLUMN = typer.Option("label", help="Column with the label.", rich_help_panel=DATA)

TEST_FILE = typer.Option(
    None,
    help="Your own test data: CSV, TSV, JSON Lines or Parquet, with labels that the model knows.",
    rich_help_panel=DATA,
)
TEST_TEXT_COLUMN = typer.Option(
    [],
    help="Column of --test-file with the text; twice for pairs.",
    show_default="the run's, or text",
    rich_help_panel=DATA,
)
TEST_LABEL_COLUMN = typer.Option(
    None,
    help="Column of --test-file with the label.",
    show_default="the run's, or label or labels",
    rich_help_panel=DATA,
)
OUTPUT_NAMES = typer.Option(
    None,
    help="Names of the model's outputs in their order, with commas.",
    show_default="those in its config.json",
    rich_help_panel=DATA,
)
LEXICON = typer.Option(
    None,
    help="Words that replace each other: counter-fitted, wordnet, roget, a JSON file of word -> substitutes, or a "
    "folder with a WN-LMF wordnet.",
    show_default="counter-fitted if --data-dir has it, else roget",
)
BATCH_SIZE = typer.Option(64, min=1)
SUITE = typer.Option(None, help="The suite to show.", show_default="latest evaluation")
FIGURE_SPLIT = typer.Option(None, help="Split of the first run's task.", show_default="test, or validation")

TRUSTED_RUNS = typer.Option(
    [],
    metavar="RUN",
    help="Run the code that this run or checkpoint brings along (repeatable).",
    show_default=False,
)
TRUSTED_MODEL = typer.Option(
    None, metavar="MODEL", help="Run the code that this model brings along.", rich_help_panel=TRAINING
)

RAY_ADDRESS = typer.Option(
    None,
    metavar="auto|local|HOST:PORT",
    help="The cluster; local starts one here and shuts it down.",
    show_default="RAY_ADDRESS, or local",
    rich_help_panel=RAY,
)


def _cpus(of: str) -> Any:
    help_, shown = f"CPUs, and threads, of {of}.", "OMP_NUM_THREADS, or 1"
    return typer.Option(None, min=1, help=help_, show_default=shown, rich_help_panel=RAY)


CELL_CPUS, CANDIDATE_CPUS, BLOCK_CPUS = _cpus("a cell"), _cpus("a candidate"), _cpus("a block of examples")
