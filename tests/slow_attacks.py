"""Attacks as papers describe them or their code runs them: one example, one text at a time, plain loops, no engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from random import Random

import numpy as np
import torch
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from transformers import BertForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from rosewood.words import noise

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


def by_importance(sure: Sure, words: list[str]) -> list[int]:
    """The places of the words, first the one without which the model is least sure."""
    return sure.order([sure.value([*words[:i], *words[i + 1 :]]) for i in range(len(words))])


def slow_step(
    sure: Sure, words: list[str], value: float, tried: list[list[str]], first: bool = False
) -> tuple[list[str] | None, list[str], float]:
    """What fools the model most, or first, or else the words to go on with, and how sure it is of them."""
    if not tried:
        return None, words, value
    values = [sure.value(each) for each in tried]
    for i in range(len(tried)) if first else sure.order(values):
        if sure.logits(tried[i]).argmax() != sure.label:
            return tried[i], tried[i], values[i]
    best = sure.lowest(values)
    if values[best] < value - sure.noise:
        return None, tried[best], values[best]
    return None, words, value


def slow_textfooler(
    logits: Logits,
    words: list[str],
    label: int,
    surface: dict[str, list[str]],
    similar: Callable[[list[str], list[str]], float] | None = None,
    bound: float = -1.0,
) -> list[str] | None:
    """The words that fool the model, or None; `similar` compares two texts."""
    sure = Sure("margin", logits, words, label)
    current, value = words, sure.value(words)
    for i in by_importance(sure, words):
        tried = [[*current[:i], other, *current[i + 1 :]] for other in surface.get(words[i], [])]
        if similar is not None:
            tried = [each for each in tried if similar(words, each) >= bound]
            tried.sort(key=lambda each: -round(similar(words, each), 5))
            fooling = [each for each in tried if logits(each).argmax() != label]
            if fooling:
                return fooling[0]
            # Of those that lower the margin alike the first of the lexicon is kept.
            tried.sort(key=lambda each: surface[words[i]].index(each[i]))
        fooled, current, value = slow_step(sure, current, value, tried, first=True)
        if fooled:
            return fooled
    return None


def slow_typos(
    logits: Logits, words: list[str], label: int, rng: Random, letters: int, share: float, tries: int
) -> list[str] | None:
    """The words that fool the model, or None."""
    sure = Sure("margin", logits, words, label)
    changed = max(1, int(share * len(words)))
    if not any(len(word) >= 3 for word in words):
        return None
    current, value = words, sure.value(words)
    for i in by_importance(sure, words):
        cost: dict[str, int] = {}
        for kind, count in (("swap", 2), ("drop", 1), ("insert", 1), ("neighbour_key", 1), ("homoglyph", 1)):
            for _ in range(tries):
                if len(words[i]) >= 3 and count <= letters:
                    cost[getattr(noise, kind)(words[i], rng)] = count
        tried = [[*current[:i], other, *current[i + 1 :]] for other in cost if other != words[i]]
        fooled, after, value = slow_step(sure, current, value, tried)
        if fooled:
            return fooled
        if after != current:
            letters, changed = letters - cost[after[i]], changed - 1
        current = after
        if not letters or not changed:
            return None
    return None


def slow_textbugger(
    logits: Logits,
    words: list[str],
    label: int,
    surface: dict[str, list[str]],
    rng: Random,
    share: float,
    neighbours: int,
    tries: int,
) -> list[str] | None:
    """The words that fool the model, or None."""
    sure = Sure("margin", logits, words, label)
    left = max(1, int(share * len(words)))
    current, value = words, sure.value(words)
    for i in by_importance(sure, words):
        bugs = []
        for kind in ("space", "drop", "swap", "look_alike", "homoglyph", "neighbour_key"):
            for _ in range(tries):
                word = words[i]
                if kind == "space" and len(word) <= 5:
                    bugs.append(noise.space(word, rng))
                elif kind in ("drop", "swap"):
                    bugs.append(getattr(noise, kind)(word[:-1], rng) + word[-1])
                elif kind != "space":
                    bugs.append(getattr(noise, kind)(word, rng))
        bugs += surface.get(words[i], [])[:neighbours]
        tried = []
        for bug in bugs:
            if bug != words[i] and [*current[:i], bug, *current[i + 1 :]] not in tried:
                tried.append([*current[:i], bug, *current[i + 1 :]])
        fooled, after, value = slow_step(sure, current, value, tried)
        if fooled:
            return fooled
        left -= after != current
        current = after
        if not left:
            return None
    return None


class SlowEdits:
    """Every edit that nobody sees: of each kind and letter one, as (word, letter, what stands there, letters)."""

    def __init__(self, words: list[str], kinds: Sequence[str], rng: Random) -> None:
        self.words = words
        self.all: list[tuple[int, int, str, int, str]] = []
        for at, word in enumerate(words):
            for kind in kinds:
                for i, letter in enumerate(word):
                    new, length = "", 1
                    if kind == "invisible":
                        new = rng.choice("\u200b\u200c\u200d") + letter
                    if kind == "homoglyphs" and letter in noise.HOMOGLYPHS:
                        new = noise.HOMOGLYPHS[letter]
                    if kind == "reorderings" and i + 1 < len(word) and word[i + 1] != letter:
                        signs = "\u202d\u2066\u202e\u2066{}\u2069\u2066{}\u2069\u202c\u2069\u202c"
                        new, length = signs.format(word[i + 1], letter), 2
                    if kind == "deletions":
                        new = rng.choice("abcdefghijklmnopqrstuvwxyz") + "\x08" + letter
                    if new:
                        self.all.append((at, i, new, length, kind))

    def free(self, edit: tuple[int, int, str, int, str], made: list[tuple[int, int, str, int, str]]) -> bool:
        at, i, _, length, _ = edit
        return all(at != a or i + length <= j or j + size <= i for a, j, _, size, _ in made)

    def words_after(self, edits: list[tuple[int, int, str, int, str]]) -> list[str]:
        made: list[tuple[int, int, str, int, str]] = []
        letters = [list(word) for word in self.words]
        for edit in edits:
            if self.free(edit, made):
                made.append(edit)
                at, i, new, length, _ = edit
                letters[at][i : i + length] = [new] + [""] * (length - 1)
        return ["".join(word) for word in letters]


KINDS = ("invisible", "homoglyphs", "reorderings", "deletions")


def slow_imperceptible(
    logits: Logits, words: list[str], label: int, rng: Random, budget: int, tries: int, kinds: Sequence[str] = KINDS
) -> list[str] | None:
    """Greedy: the words that fool the model, or None."""
    sure = Sure("margin", logits, words, label)
    edits = SlowEdits(words, kinds, rng)
    made: list[tuple[int, int, str, int, str]] = []
    current, value = words, sure.value(words)
    order = by_importance(sure, words)
    while True:
        before = len(made)
        for at in order:
            tried = []
            for kind in kinds:
                free = [each for each in edits.all if each[0] == at and each[4] == kind and edits.free(each, made)]
                tried += rng.sample(free, min(tries, len(free)))
            texts = [edits.words_after([*made, each]) for each in tried]
            fooled, after, value = slow_step(sure, current, value, texts)
            if fooled:
                return fooled
            if after != current:
                made.append(tried[texts.index(after)])
                current = after
            if len(made) == budget:
                return None
        if len(made) == before:
            return None


def slow_evolution(
    logits: Logits,
    words: list[str],
    label: int,
    rng: np.random.Generator,
    budget: int,
    population: int,
    generations: int,
    form: str = "margin",
) -> list[str] | None:
    """Differential evolution of edits that nobody sees: the words that fool the model, or None."""
    sure = Sure(form, logits, words, label)
    edits = SlowEdits(words, KINDS, Random(int(rng.integers(2**63))))
    known = sorted(edits.all, key=lambda edit: edit[:2])
    size = max(4, population * budget)
    ranks = rng.permuted(np.tile(np.arange(size), (budget, 1)), axis=1)
    offsets = rng.random((size, budget))
    group = [[(ranks[g, i] + offsets[i, g]) / size for g in range(budget)] for i in range(size)]
    fitness = [float("inf")] * size
    children = group
    for _ in range(generations + 1):
        texts = []
        for child in children:
            numbers = [int(gene * (len(known) + 1)) for gene in child]
            texts.append(edits.words_after([known[number - 1] for number in numbers if number > 0]))
        values = [sure.value(text) for text in texts]
        for i in sure.order(values):
            if logits(texts[i]).argmax() != label:
                return texts[i]
        group = [children[i] if values[i] < fitness[i] - sure.noise else group[i] for i in range(size)]
        fitness = [values[i] if values[i] < fitness[i] - sure.noise else fitness[i] for i in range(size)]
        best = group[sure.lowest(fitness)]
        draws = rng.random((size, size))
        step = rng.uniform(0.5, 1.0)
        fresh = rng.random((size, budget))
        coins = rng.random((size, budget))
        sure_genes = rng.integers(budget, size=size)
        children = []
        for i in range(size):
            one, two = sorted((j for j in range(size) if j != i), key=lambda j: draws[i, j])[:2]
            child = list(group[i])
            for g in range(budget):
                if coins[i, g] < 0.7 or g == sure_genes[i]:
                    gene = best[g] + step * (group[one][g] - group[two][g])
                    child[g] = gene if 0 <= gene < 1 else fresh[i, g]
            children.append(child)
    return None


class Speaker:
    """A masked language model, one text at a time."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.model, self.tokenizer = model, tokenizer
        tokens = [token for token in tokenizer.get_vocab() if token not in tokenizer.all_special_tokens]
        self.words = [token for token in tokens if token.isalpha()]
        self.pieces = [token for token in tokens if token.startswith("##")]

    def scores(self, tokens: list[str]) -> list[dict[str, float]]:
        """For each token of a text, the log-probability of each token in its place."""
        ids = self.tokenizer.convert_tokens_to_ids(["[CLS]", *tokens, "[SEP]"])
        with torch.no_grad():
            found = self.model(torch.tensor([ids])).logits[0, 1:-1].log_softmax(-1)
        vocabulary = self.tokenizer.get_vocab()
        return [{token: float(row[number]) for token, number in vocabulary.items()} for row in found]


def best_tokens(scores: dict[str, float], tokens: list[str], count: int) -> list[str]:
    return sorted(tokens, key=lambda token: -scores[token])[:count]


def slow_bert_attack(
    logits: Logits, words: list[str], label: int, speaker: Speaker, count: int, combinations: int, share: float
) -> list[str] | None:
    """The words that fool the model, or None."""
    sure = Sure("margin", logits, words, label)
    tokens = [speaker.tokenizer.tokenize(word) for word in words]
    flat = [token for word in tokens for token in word]
    scores = speaker.scores(flat)
    left = max(1, int(share * len(words)))
    current, value = words, sure.value(words)
    for i in by_importance(sure, words):
        if words[i] in ENGLISH_STOP_WORDS:
            continue
        start = sum(len(word) for word in tokens[:i])
        own = scores[start : start + len(tokens[i])]
        found = best_tokens(own[0], speaker.words, count)
        if len(own) > 1:
            lists = [found, *(best_tokens(each, speaker.pieces, count) for each in own[1:])]
            made = sorted(product(*lists), key=lambda each: -sum(own[j][token] for j, token in enumerate(each)))[
                :combinations
            ]

            def surprise(each: tuple[str, ...], start: int = start) -> float:
                again = speaker.scores([*flat[:start], *each, *flat[start + len(each) :]])
                return -sum(again[start + j][token] for j, token in enumerate(each)) / len(each)

            found = ["".join(each).replace("##", "") for each in sorted(made, key=surprise)]
        found = [each for each in found if each != words[i] and each not in ENGLISH_STOP_WORDS]
        tried = [[*current[:i], each, *current[i + 1 :]] for each in dict.fromkeys(found)]
        fooled, after, value = slow_step(sure, current, value, tried, first=True)
        if fooled:
            return fooled
        left -= after != current
        current = after
        if not left:
            return None
    return None


def slow_bae(logits: Logits, words: list[str], label: int, speaker: Speaker, count: int, form: str) -> list[str] | None:
    """The words that fool the model, or None; an inserted word is in one string with its neighbour."""
    sure = Sure("margin", logits, words, label)
    current, value = words, sure.value(words)
    for i in by_importance(sure, words):
        if words[i] in ENGLISH_STOP_WORDS:
            continue
        for operations in form.split("+"):
            tried = []
            patterns = ["{}"] * ("R" in operations)
            patterns += ["{} " + current[i], current[i] + " {}"] * ("I" in operations)
            for pattern in patterns:
                text = " ".join([*current[:i], pattern.format("[MASK]"), *current[i + 1 :]])
                tokens = speaker.tokenizer.tokenize(text)
                scores = speaker.scores(tokens)[tokens.index("[MASK]")]
                for token in best_tokens(scores, speaker.words, count):
                    if pattern != "{}" or token != current[i]:
                        tried.append([*current[:i], pattern.format(token), *current[i + 1 :]])
            fooled, current, value = slow_step(sure, current, value, tried, first=True)
            if fooled:
                return fooled
    return None
