"""What things take on this machine: a few optimiser steps and a few attacks are timed before the race is planned."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.data.loading import load_split
from rosewood.errors import ExperimentError, RosewoodError
from rosewood.experiments.harden.candidates import Trained
from rosewood.experiments.harden.race import Race, bars_on_terminals_only
from rosewood.experiments.harden.stage import choosing_task, correct_rows, robust_rows, shielded
from rosewood.models.modes import accelerated
from rosewood.models.open import load_classifier
from rosewood.results import Costs
from rosewood.training.run import Plan

TIMED_ROWS, TIMED_ATTACKS = 64, 12


def measured_costs(race: Race) -> Costs:
    """Seconds of a step of each recipe, of a row, and of an attacked row with the defence that takes longest."""
    watch, task = race.watch, choosing_task(race.output)
    began = time.monotonic()
    opened, tokenizer = load_classifier(race.base.model)
    opened = accelerated(opened)
    begin = time.monotonic() - began
    rows = load_split(task, "test", size=TIMED_ROWS, seed=race.base.seed)
    few = rows.select(range(min(TIMED_ATTACKS, len(rows))))
    correct_rows(opened, tokenizer, few, task, race.base.max_length)  # what comes first takes longer
    clean = _timed(lambda: correct_rows(opened, tokenizer, rows, task, race.base.max_length))
    attack = max(_attack_seconds(race, opened, tokenizer, few, defence) for defence in ("", *race.around))
    steps = {}
    for each in race.entrants:
        try:
            with bars_on_terminals_only():
                steps[each.name] = watch.step(_plan_of(race, each), each.name)
        except RosewoodError as error:
            raise ExperimentError(
                f"{each.name} cannot be trained here: {error}\nName candidates that can, with --candidate"
            ) from None
    return Costs(
        steps=steps,
        clean_row=watch.of("clean_row", clean / len(rows)),
        attacked_row=watch.of("attacked_row", attack / len(few)),
        begin=watch.of("begin", begin),
    )


def _attack_seconds(
    race: Race, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: Dataset, defence: str
) -> float:
    """Seconds of attacks on some rows, with a defence around the model or none."""
    task = choosing_task(race.output)
    with TemporaryDirectory() as folder:
        if defence:
            work = race.base.model_copy(update={"defence": defence})
            model, tokenizer = load_classifier(str(shielded(work, Path(work.model), Path(folder) / "wrapped")))
            model = accelerated(model)
        robust_rows(model, tokenizer, rows.select([0]), task, race.base, Path(folder) / "first")
        return _timed(lambda: robust_rows(model, tokenizer, rows, task, race.base, Path(folder) / "timed"))


def _plan_of(race: Race, each: Trained) -> Plan:
    model = race.base.model if each.origin == "checkpoint" else race.base.pretrained
    return race.base.model_copy(update={"recipe": each.recipe.to_dict(), "model": model}).plan()


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
