"""Robust accuracy on validation data, measured after every epoch, so that the most robust weights can be kept."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from datasets import Dataset
from rich import get_console
from rich.console import Console
from transformers import PreTrainedTokenizerBase, TrainerCallback

from rosewood.attacks.runner.api import robust_accuracy
from rosewood.attacks.runner.attack import Attack
from rosewood.training.health import guesses
from rosewood.words.lexicon import Lexicon

METRIC = "eval_robust_accuracy"
ATTACKED = "eval_attacked_accuracy"
CHOOSES = "eval_robust_if_learnt"


class RobustValidation(TrainerCallback):
    """Adds `eval_robust_accuracy` to every evaluation: the share of examples that stay right under an attack.

    Beside it is the accuracy on the same examples without the attack, and the figure that chooses between epochs: a
    model at guessing cannot be misled, so it comes after every other, whatever it keeps under attack.
    The examples are the same ones every time. The search has random numbers of its own, so that training goes on as
    it would without it.
    """

    def __init__(
        self,
        data: Dataset,
        tokenizer: PreTrainedTokenizerBase,
        attack: Attack,
        lexicon: Lexicon | None,
        field: str | None,
        examples: int,
        max_length: int,
    ) -> None:
        self._data, self._tokenizer, self._attack, self._lexicon = data, tokenizer, attack, lexicon
        self._field, self._examples, self._max_length = field, examples, max_length

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        metrics: dict[str, float] = kwargs["metrics"]
        console = get_console() if state.is_world_process_zero else Console(quiet=True)
        with torch.random.fork_rng(), console.status(f"{self._attack.name} on validation data"):
            summary = robust_accuracy(
                kwargs["model"],
                self._tokenizer,
                self._data,
                self._attack,
                examples=self._examples,
                lexicon=self._lexicon,
                field=self._field,
                max_length=self._max_length,
                progress=False,
            )
        if not summary.attacked:
            warnings.warn(
                f"{self._attack.name} could change only {summary.changeable_words:.1%} of the words of the validation "
                "texts, so that the robust accuracy that selects the best epoch is the clean one. Are they in another "
                "language?",
                stacklevel=2,
            )
        robust = summary.robust_accuracy
        found = {METRIC: robust, ATTACKED: summary.clean_accuracy, CHOOSES: robust - 1 if guesses(metrics) else robust}
        metrics |= found
        state.log_history[-1] |= found
