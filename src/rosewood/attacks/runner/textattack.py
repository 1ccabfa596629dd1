"""Recipes of TextAttack against our models, where TextAttack is installed; their results come back as ours.

TextAttack takes one example at a time and has its own idea of words, constraints and queries (a text that it asks for
again counts again). Whatever a recipe downloads, it downloads when it is built.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import softmax

from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.example import key
from rosewood.attacks.runner.job import Campaign
from rosewood.attacks.runner.scores import Floats
from rosewood.attacks.runner.search import Resources, Search, Target
from rosewood.errors import closest
from rosewood.models.modes import evaluating
from rosewood.models.scoring import Row, Scorer
from rosewood.results import AttackedExample, AttackStatus, ChangedWord
from rosewood.words.text import Words


@dataclass(frozen=True)
class TextAttackRecipe(Attack):
    """A recipe of TextAttack by the name it has there, such as deepwordbug or pwws."""

    examples_together: ClassVar[int] = 1

    recipe: str

    def lacks(self, resources: Resources) -> list[str]:
        if find_spec("textattack") is None:
            return [
                f"textattack:{self.recipe} needs TextAttack, which is not installed: pip install textattack, "
                "or choose one of `rosewood list attacks`"
            ]
        if self.recipe not in _recipes():
            return [f"TextAttack has no recipe {self.recipe!r}: {closest(self.recipe, list(_recipes()))}"]
        return []

    def search(self, target: Target) -> Search:
        raise NotImplementedError("TextAttack searches by itself: see TextAttackCampaign")


class TextAttackCampaign(Campaign):
    """A campaign whose searches are those of a TextAttack recipe."""

    def records(self, rows: Sequence[int], deadline: float | None) -> Iterator[AttackedExample]:
        with evaluating(self.model):
            for row in rows:
                if deadline is not None and time.monotonic() > deadline:
                    return
                yield self._compared(self._record(row))

    def __getstate__(self) -> dict[str, Any]:
        # Another process builds its own: recipes hold open files and functions without a name.
        return {name: value for name, value in self.__dict__.items() if name != "_built"}

    @cached_property
    def _built(self) -> Any:
        assert isinstance(self.attack, TextAttackRecipe)
        module, _, name = _recipes()[self.attack.recipe].rpartition(".")
        fields = list(self.texts[0])
        attack = getattr(import_module(module), name).build(_wrapper(self))
        if self.settings.max_queries is not None:
            attack.goal_function.query_budget = self.settings.max_queries
        attack.goal_function.batch_size = self.settings.batch_size
        if len(fields) > 1:
            ignored = {each for each in fields if each != self.field}
            constraints = import_module("textattack.constraints.pre_transformation")
            attack.pre_transformation_constraints.append(constraints.InputColumnModification(fields, ignored))
        return attack

    def _record(self, row: int) -> AttackedExample:
        texts, label = self.texts[row], self.goals[row].label
        _seed(key(self.settings.seed, texts))
        result = self._built.attack(OrderedDict(texts), label)
        clean, after = result.original_result, result.perturbed_result
        before = Words.split(texts[self.field])
        status = self._status(result)
        record = AttackedExample(
            row=row,
            status=status,
            label=label,
            texts=texts,
            prediction=int(np.argmax(clean.raw_output)),
            probabilities=_probabilities(clean),
            words=len(before.words),
            queries=result.num_queries,
        )
        if status != "broken":
            return record
        adversarial = dict(zip(texts, _row(after.attacked_text.tokenizer_input), strict=True))[self.field]
        return record.model_copy(
            update={
                "adversarial": adversarial,
                "adversarial_prediction": int(np.argmax(after.raw_output)),
                "adversarial_probabilities": _probabilities(after),
                "changes": _changes(before, Words.split(adversarial)),
                "aligned": _aligned(texts[self.field], adversarial),
            }
        )

    def _status(self, result: Any) -> AttackStatus:
        statuses: dict[str, AttackStatus] = {"SkippedAttackResult": "wrong", "SuccessfulAttackResult": "broken"}
        status = statuses.get(type(result).__name__, "robust")
        spent = self.settings.max_queries is not None and result.num_queries >= self.settings.max_queries
        return "out_of_queries" if status == "robust" and spent else status


def _recipes() -> dict[str, str]:
    """Name -> where TextAttack defines the recipe."""
    return dict(import_module("textattack.attack_args").ATTACK_RECIPE_NAMES)


def _row(texts: str | tuple[str, ...]) -> Row:
    """TextAttack has a plain string for one field and a tuple for two."""
    return (texts,) if isinstance(texts, str) else tuple(texts)


def _wrapper(campaign: Campaign) -> Any:
    """The model as TextAttack sees it: a function from texts to class probabilities, in the order of the labels."""
    scorer = Scorer(campaign.model, campaign.tokenizer, campaign.max_length, campaign.settings.batch_size)

    class Wrapper(import_module("textattack.models.wrappers").ModelWrapper):  # type: ignore[misc]
        model = campaign.model
        tokenizer = campaign.tokenizer

        def __call__(self, text_input_list: Sequence[Any], **_: Any) -> Floats:
            rows = [_row(texts) for texts in text_input_list]
            logits = np.empty((len(rows), scorer.classes))
            for batch in scorer.batches(rows):
                logits[batch.rows] = batch.logits
            return np.asarray(softmax(logits[:, campaign.columns], axis=1))

    return Wrapper()


def _seed(number: int) -> None:
    # TextAttack draws from the global generators; so the result of an example is its own.
    random.seed(number)
    np.random.seed(number % 2**32)
    torch.manual_seed(number % 2**63)


def _probabilities(result: Any) -> list[float]:
    return [float(each) for each in np.clip(np.asarray(result.raw_output, dtype=np.float64), 0, 1)]


def _changes(before: Words, after: Words) -> list[ChangedWord]:
    """The words that differ; place by place where there are as many as before."""
    if len(before.words) == len(after.words):
        pairs = enumerate(zip(before.words, after.words, strict=True))
        return [ChangedWord(position=i, before=a, after=b) for i, (a, b) in pairs if a != b]
    changes = []
    for kind, start, stop, from_, to in SequenceMatcher(None, before.words, after.words, autojunk=False).get_opcodes():
        if kind != "equal":
            old, new = " ".join(before.words[start:stop]), " ".join(after.words[from_:to])
            changes.append(ChangedWord(position=start, before=old, after=new))
    return changes


def _aligned(before: str, after: str) -> list[tuple[str, str]]:
    one, two = Words.split(before), Words.split(after)
    if one.gaps == two.gaps:
        return one.aligned(two.words)
    olds, news = ([piece for piece, _ in words.aligned(words.words)] for words in (one, two))
    found = SequenceMatcher(None, olds, news, autojunk=False).get_opcodes()
    return [("".join(olds[a:b]), "".join(news[c:d])) for _, a, b, c, d in found]
