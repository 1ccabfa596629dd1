"""PWWS and Genetic as the papers' code runs them: one example, one text at a time, plain loops, no engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from transformers import BertForSequenceClassification, PreTrainedTokenizerBase

Logits = Callable[[list[str]], np.ndarray]
NEAR = 1e-5  # scores this close are equal, and the first one wins


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


def lowest(values: list[float]) -> int:
    return next(i for i, value in enumerate(values) if value <= min(values) + NEAR)


def slow_pwws(logits: Logits, words: list[str], label: int, surface: dict[str, list[str]]) -> list[str] | None:
    """The words that fool the model, or None."""
    start = chance(logits(words), label)
    saliency = np.array(
        [start - chance(logits([*words[:i], "NULL", *words[i + 1 :]]), label) for i in range(len(words))]
    )
    weights = np.exp(saliency - saliency.max())
    weights /= weights.sum()
    plans = []
    for i, word in enumerate(words):
        if not surface.get(word):
            continue
        chances = [chance(logits([*words[:i], other, *words[i + 1 :]]), label) for other in surface[word]]
        best = lowest(chances)
        plans.append((-round((start - chances[best]) * weights[i] * len(words), 5), i, surface[word][best]))
    current = list(words)
    for _, i, other in sorted(plans, key=lambda plan: plan[:2]):
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
    fitness = chance if form == "probability" else margin

    def perturb(individual: list[str], place: int) -> tuple[float, list[str]]:
        tried = []
        for other in [words[place], *options[place]]:
            tried.append([*individual[:place], other, *individual[place + 1 :]])
        values = [fitness(logits(each), label) for each in tried]
        return values[lowest(values)], tried[lowest(values)]

    def success(group: list[tuple[float, list[str]]]) -> list[str] | None:
        # Best first; those within the same hundred-thousandth in order.
        for _, individual in sorted(group, key=lambda each: round(each[0], 5)):
            if logits(individual).argmax() != label:
                return individual
        return None

    group = [perturb(words, places[draw]) for draw in rng.integers(len(places), size=size)]
    for _ in range(generations):
        found = success(group)
        if found:
            return found
        elite = group[lowest([value for value, _ in group])]
        if form == "probability":
            weights = [1 - value + floor for value, _ in group]
        else:
            weights = [1 / (1 + np.exp(value)) + floor for value, _ in group]
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
