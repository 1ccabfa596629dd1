"""Replay: texts that an attack found on one model, tried on another. Does what breaks one break the other?

A replay is a campaign like any other, on the examples that were broken, with a search that knows one text for each.
So it has the same files, budgets and random models. Its figures are no robust accuracy: nobody searched for texts that
break this model. Rather, they say how much of an attack carries over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.cases import EntityType, Goal, LabelSet, OneLabel, type_of
from rosewood.attacks.runner.example import Attempt
from rosewood.attacks.runner.execute import carry_out
from rosewood.attacks.runner.job import Campaign
from rosewood.attacks.runner.report import load_attack, name_of
from rosewood.attacks.runner.search import Resources, Search, Target, move
from rosewood.config.settings import AttackSettings
from rosewood.errors import RunError
from rosewood.models.modes import precision_on
from rosewood.models.scoring import Scorer, check_loaded, label_columns, text_length
from rosewood.results import AttackedExample, AttackResult
from rosewood.words.text import BETWEEN_SPACES, Words


@dataclass(frozen=True)
class Replay(Attack):
    """Where the texts come from."""

    attack: str
    found_on: str
    """The model that they break."""
    source: str
    """The fingerprint of the attack that found them."""


@dataclass(frozen=True)
class Once(Attack):
    """A single text for an example."""

    candidate: tuple[str, ...]

    def search(self, target: Target) -> Search:
        yield move([self.candidate])


@dataclass(frozen=True)
class ReplayCampaign(Campaign):
    """A campaign whose texts were found before."""

    found: tuple[AttackedExample, ...] = ()
    """The broken examples, in the order of `texts`."""

    def _attempts(self, rows: Sequence[int], scorer: Scorer) -> Iterator[Attempt]:
        for row in rows:
            found = self.found[row]
            if found.about_words:  # words with labels stay apart
                words = Words.split(self.texts[row][self.field], BETWEEN_SPACES)
                after = list(words.words)
                for change in found.changes:
                    after[change.position] = change.after
            else:
                words = Words(tuple(before for before, _ in found.aligned), ("",) * (len(found.aligned) + 1))
                after = [piece for _, piece in found.aligned]
            yield self._attempt(Once(tuple(after)), row, words, found.words)

    def _compared(self, example: AttackedExample) -> AttackedExample:
        """With what is known of the text: its row, and how it differs from the original."""
        known = self.found[example.row]
        facts: dict[str, Any] = {"row": known.row, "words": known.words}
        if example.status == "broken":
            about = ("changes", "broken_by", "words_share", "similarity", "perplexity_ratio", "antonyms")
            facts |= {name: getattr(known, name) for name in about}
        return example.model_copy(update=facts)


def prepare_replay(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: AttackResult, settings: AttackSettings
) -> ReplayCampaign:
    """A campaign that tries the texts of another one."""
    found = tuple(example for example in source.examples if example.status == "broken")
    if not found:
        raise RunError(
            f"the attack {name_of(source)} on {source.model} broke no example, so there is nothing to replay"
        )
    max_length = settings.max_length or text_length(model, tokenizer)
    outputs = Scorer(model, tokenizer, max_length, settings.batch_size).classes
    columns = label_columns(model.config, source.label_names) if source.label_names else list(range(outputs))
    highest = max(number for example in found for number in (example.label, *example.expected))
    if highest >= len(columns):
        raise RunError(
            f"the texts have labels up to {highest}, and the model has {len(columns)} outputs: replay them on a "
            "model of the same task"
        )
    refusal = getattr(model.config, "refusal", None)
    if refusal is not None and refusal not in columns:
        columns.append(refusal)
    return ReplayCampaign(
        model,
        tokenizer,
        Replay(name_of(source), source.model, source.fingerprint),
        Resources(),
        texts=[example.texts for example in found],
        goals=[_goal(example, model, source.label_names) for example in found],
        columns=columns,
        field=source.field,
        max_length=max_length,
        data=source.data,
        settings=settings.model_copy(
            update={
                "field": source.field,
                "max_length": max_length,
                "precision": precision_on(model, settings.precision),
            }
        ),
        task=source.task,
        split=source.split,
        test_file=source.test_file,
        label_names=tuple(source.label_names),
        found=found,
    )


def _goal(example: AttackedExample, model: PreTrainedModel, names: Sequence[str]) -> Goal:
    if example.about_words:
        kind = type_of(names[example.expected[0]])
        of_type = tuple(type_of(name) == kind for name in names)
        return EntityType(tuple(example.about_words), tuple(example.expected), of_type)
    if getattr(model.config, "problem_type", None) == "multi_label_classification":
        return LabelSet(tuple(number in example.expected for number in range(len(names))))
    return OneLabel(example.label)


def replay(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    source: AttackResult | str | Path,
    *,
    folder: str | Path | None = None,
    progress: bool = True,
    **settings: Any,
) -> AttackResult:
    """Ask a model for the texts that an attack found on another one.

    Args:
        model: a classifier of the same task, as transformers loads it.
        tokenizer: its tokenizer.
        source: what `attack` gave, or the folder that it was kept in.
        folder: keeps the result; the same call goes on there after a crash.
        progress: whether to show a bar.
        settings: the fields of `AttackSettings`, such as `max_length`.

    Returns:
        A result with the examples that the attack had broken. `success_rate` is the share of them that are broken here,
        too, among those whose original text the model gets right.

    Raises:
        RunError: nothing was broken, or the model has other labels.

    Example:
        >>> replay(model, tokenizer, "runs/a/attacks/pwws-test-0f3c9a1e").summary.success_rate  # doctest: +SKIP
        0.41
    """
    check_loaded(model, tokenizer)
    known = source if isinstance(source, AttackResult) else load_attack(source)
    campaign = prepare_replay(model, tokenizer, known, AttackSettings.checked(settings))
    return carry_out(campaign, None if folder is None else Path(folder), progress=progress)
