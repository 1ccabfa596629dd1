"""PWWS and Genetic as the papers' code runs them: one example, one text at a time, plain loops, no engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from transformers import BertForSequenceClassification, PreTrainedTokenizerBase

Logits = Callable[[list[str]], np.ndarray]


def one_at_a_time(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerBase, before: Sequence[str] = ()
) -> Logits:
    """Logits of a list of words, behind the texts `before`, each text by itself and only once."""
    known: dict[str, np.ndarray] = {}

    def logits(words: list[str]) -> np.ndarray:
        text = " ".join(words)
        if text not in known:
            model.eval()
            with torch.no_grad():
                output = model(**tokenizer(*before, text, return_tensors="pt", truncation=True, max_length=128))
            known[text] = output.logits[0].double().numpy()
        return known[text]

    return logits


def chance(logits: np.ndarray, label: int) -> float:
    shares = np.exp(logits - logits.max())
    return float(shares[label] / shares.sum())


def margin(logits: np.ndarray, label: int) -> float:
    return float(logits[label] - max(value for i, value in enumerate(logits) if i != label))


class Sure:
    """How sure the model is of the label: a value to compare, the share from 0 to 1 that it is, and what is equal.

    probability: the model's own; raw-margin: of logits as they are; margin: of logits at the temperature at which the
    margin of the original words is 3.
    """

    def __init__(self, form: str, logits: Logits, words: list[str], label: int) -> None:
        self.form, self.logits, self.label = form, logits, label
        self.temperature = margin(logits(words), label) / 3 if form == "margin" else 1.0
        self.noise = 1e-5 * float(np.abs(logits(words)).max()) / self.temperature

    def value(self, words: list[str]) -> float:
        if self.form == "probability":
            return chance(self.logits(words), self.label)
        return margin(self.logits(words), self.label) / self.temperature

    def share(self, value: float) -> float:
        return value if self.form == "probability" else float(1 / (1 + np.exp(-value)))

    def lowest(self, values: list[float]) -> int:
        return next(i for i, value in enumerate(values) if value <= min(values) + self.noise)

    def order(self, values: list[float]) -> list[int]:
        """Lowest first; those within the same step of the noise in order."""
        return sorted(range(len(values)), key=lambda i: (round(values[i] / self.noise), i))


def slow_pwws(
    logits: Logits, words: list[str], label: int, surface: dict[str, list[str]], form: str = "margin"
) -> list[str] | None:
    """The words that fool the model, or None."""
    sure = Sure(form, logits, words, label)
    start = sure.share(sure.value(words))
    saliency = np.array(
        [start - sure.share(sure.value([*words[:i], "NULL", *words[i + 1 :]])) for i in range(len(words))]
    )
    weights = np.exp(saliency - saliency.max())
    weights /= weights.sum()
    plans = []
    for i, word in enumerate(words):
        if not surface.get(word):
            continue
        left = [sure.value([*words[:i], other, *words[i + 1 :]]) for other in surface[word]]
        best = sure.lowest(left)
        plans.append(((start - sure.share(left[best])) * weights[i] * len(words), i, surface[word][best]))
    current = list(words)
    for number in sure.order([-worth for worth, _, _ in plans]):
        _, i, other = plans[number]
        current[i] = other
        if logits(current).argmax() != label:
            return current
    return None


def slow_genetic(
    logits: Logits,
    words: list[str],
    label: int,
    options: list[list[str]],
    rng: np.random.Generator,
    size: int,
    generations: int,
    form: str,
    floor: float,
    check_last: bool,
) -> list[str] | None:
    """The words that fool the model, or None; `options[i]` are the substitutes of word i."""
    places = [i for i, found in enumerate(options) if found]
    if not places:
        return None
    sure = Sure(form, logits, words, label)

    def perturb(individual: list[str], place: int) -> tuple[float, list[str]]:
        tried = []
        for other in [words[place], *options[place]]:
            tried.append([*individual[:place], other, *individual[place + 1 :]])
        values = [sure.value(each) for each in tried]
        return values[sure.lowest(values)], tried[sure.lowest(values)]

    def success(group: list[tuple[float, list[str]]]) -> list[str] | None:
        for i in sure.order([value for value, _ in group]):
            if logits(group[i][1]).argmax() != label:
                return group[i][1]
        return None

    group = [perturb(words, places[draw]) for draw in rng.integers(len(places), size=size)]
    for _ in range(generations):
        found = success(group)
        if found:
            return found
        elite = group[sure.lowest([value for value, _ in group])]
        weights = [1 - sure.share(value) + floor for value, _ in group]
        races = rng.exponential(size=(size - 1, 2, size))
        coins = rng.random((size - 1, len(places)))
        draws = rng.integers(len(places), size=size - 1)
        children = []
        for child in range(size - 1):
            mother, father = (
                group[int(np.argmin([races[child, side, i] / weights[i] for i in range(size)]))][1] for side in (0, 1)
            )
            mixed = list(words)
            for i, place in enumerate(places):
                mixed[place] = mother[place] if coins[child, i] < 0.5 else father[place]
            children.append(perturb(mixed, places[draws[child]]))
        group = [elite, *children]
    return success(group) if check_last else None
