"""Robust accuracy within a budget, to choose between models or checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.attacks.search import run
from rosewood.attacks.search.prepare import attackable
from rosewood.errors import RunError
from rosewood.protocol import Attack
from rosewood.results import AttackSummary

if TYPE_CHECKING:
    from rosewood.data.own import Rows


def robust_accuracy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    data: Rows | str | Path,
    attack: str | Attack = "typos",
    *,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    examples: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    **settings: Any,
) -> AttackSummary:
    """A quick estimate, to choose between models or checkpoints: attack a few examples, or for a few seconds.

    The data are those of `attack`: rows in memory, or a file. At most `examples` are taken, at random, the same ones
    for every model under one seed. When time is up, the true figure for the examples that were begun lies between
    `robust_accuracy` and `robust_accuracy_at_most`, and `robust_interval` goes from the low end of the one's 95 %
    interval to the high end of the other's. Other settings are those of `attack`.
    """
    if examples is not None and examples < 1:
        raise RunError(f"examples must be at least 1, got {examples}")
    rows = attackable(data, model.config, text_columns, label_column)
    if examples is not None and examples < len(rows):
        rows = rows.shuffle(seed=seed).select(range(examples))
    return run.attack(model, tokenizer, rows, attack, seed=seed, max_seconds=seconds, **settings).summary
